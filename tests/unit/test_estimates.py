"""The estimate, replayed on what real builds printed when: its errors are those that docs/speed.md names.

Each line of a fixture has the second at which it came. Bazel 7.7.1 printed them while it compiled parts of TensorFlow
on two cores with other work beside it. It wrote no times, but a line about every 16 seconds. So the lines are spread
evenly over the time of the build, and the times of the object files agree with that. Kernels were compiled one by one,
and each line names its seconds.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkit.wheel.log import read_work
from train.system.progress import Estimate, Work

FOLDER = Path(__file__).parents[1] / "fixtures" / "progress"
PAGE = Path(__file__).parents[2] / "docs" / "speed.md"
SHARES = (0.1, 0.25, 0.5, 0.75)


def read(name: str) -> tuple[list[tuple[float, Work]], float]:
    """Return what was printed at which second, and how long all of it took."""
    *lines, last = (line.partition(" ") for line in (FOLDER / f"{name}.txt").read_text().splitlines())
    return [(float(at), work) for at, _, line in lines if (work := read_work(line))], float(last[0])


def measure(name: str) -> Iterator[float | None]:
    """Yield the error of the estimated whole time, in percent, at each share of the time; None without an estimate."""
    said, whole = read(name)
    for share in SHARES:
        estimate = Estimate()
        for at, work in said:
            if at <= share * whole:
                estimate.feed(work, at)
        left = estimate.left(share * whole)
        yield None if left is None else 100 * (share * whole + left - whole) / whole


def _row(name: str) -> str:
    errors = ("none yet" if error is None else f"{error:+.0f} %" for error in measure(name))
    return f"| {' | '.join(errors)} |"


@pytest.mark.parametrize("name", ["framework", "platform", "libtensorflow_framework", "kernels"])
def test_the_page_has_the_errors_of_real_streams(name: str) -> None:
    row = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}`"))
    assert row.endswith(_row(name))


@pytest.mark.parametrize("name", ["framework", "platform", "libtensorflow_framework"])
def test_the_mean_over_seconds_is_better_than_that_over_actions(name: str) -> None:
    said, whole = read(name)
    errors = {}
    for uneven in (False, True):
        estimate = Estimate()
        for at, work in said:
            if at <= 0.5 * whole:
                estimate.feed(work._replace(uneven=uneven), at)
        left = estimate.left(0.5 * whole)
        assert left is not None
        errors[uneven] = abs(left - 0.5 * whole)
    assert errors[True] < errors[False]


@pytest.mark.parametrize("name", ["framework", "platform", "libtensorflow_framework", "kernels"])
def test_no_estimate_of_a_real_stream_is_absurd(name: str) -> None:
    said, whole = read(name)
    estimate = Estimate()
    for at, work in said:
        estimate.feed(work, at)
        left = estimate.left(at)
        assert left is None or 0 <= left <= 3 * whole
    assert estimate.left(whole) is not None
