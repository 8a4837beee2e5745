"""The estimate, replayed on what real builds printed when: its errors are those that docs/speed.md names.

Each line of a fixture has the second at which it came. Bazel 7.7.1 printed them while it compiled parts of TensorFlow
on two cores with other work beside it. It wrote no times for three of them, but a line about every 16 seconds. So these
lines are spread evenly over the time of the build, and the times of the object files agree with that. For `tools` and
`libraries` there was a line each second, with its time. A header was missing for `tools`, so the last 42 of its actions
were left out.

Kernels were compiled one by one in the order of their names, and each line names its seconds. They are replayed in the
order of now.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.wheel.bazel_output import read_work
from train.system.progress import Estimate, Work

FOLDER = Path(__file__).parents[2] / "fixtures" / "progress"
BUILDS = ("framework", "platform", "libtensorflow_framework", "tools")
"""Builds of more than a thousand of Bazel's actions."""

STEPS = st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=40)
"""Reports: the seconds since the one before, the units done since then, and those found since then."""


def _replay(estimate: Estimate, steps: list[tuple[float, int, int]], *, uneven: bool = False) -> tuple[Work, float]:
    work, now = Work(total=100, unit="x", uneven=uneven), 0.0
    estimate.feed(work, now)
    for spent, done, found in steps:
        now += spent
        work = work._replace(done=work.done + done, total=max(work.total + found, work.done + done))
        estimate.feed(work, now)
    return work, now


@given(STEPS, st.booleans(), st.floats(0, 1e5))
def test_an_estimate_is_never_negative_and_has_a_bound(
    steps: list[tuple[float, int, int]], uneven: bool, waited: float
) -> None:
    estimate = Estimate()
    work, now = _replay(estimate, steps, uneven=uneven)
    left = estimate.left(now + waited)
    if left is not None:
        bound = Estimate.MOST * now * (work.total - work.done) / work.done
        assert 0 <= left <= bound * (1 + 1e-9)


@given(STEPS, st.booleans(), st.floats(0, 1e5), st.floats(0, 1e5))
def test_between_reports_it_counts_down_by_one_unit_at_most(
    steps: list[tuple[float, int, int]], uneven: bool, first: float, second: float
) -> None:
    estimate = Estimate()
    _, now = _replay(estimate, steps, uneven=uneven)
    early, late = estimate.left(now + first), estimate.left(now + first + second)
    if early is not None and late is not None and estimate.cost:
        assert late <= early
        assert (estimate.left(now) or 0) - late <= estimate.cost * (1 + 1e-9)


@given(st.floats(0.01, 100), st.integers(20, 500), st.booleans())
def test_even_work_is_estimated_exactly(cost: float, total: int, uneven: bool) -> None:
    estimate = Estimate()
    for done in range(total // 10 + 2):
        estimate.feed(Work("", done, total, "x", uneven), done * cost)
    left = estimate.left(done * cost)
    assert left == pytest.approx((total - done) * cost)


def test_no_estimate_comes_too_early_or_of_units_that_say_nothing() -> None:
    estimate = Estimate()
    estimate.feed(Work("", 1000, 3000, "x"), 0)  # a cache had these
    estimate.feed(Work("", 1050, 3000, "x"), 60)
    assert estimate.left(60) is None
    estimate.feed(Work("", 1200, 3000, "x"), 240)
    assert estimate.left(240) == 1800 / 200 * 240
    estimate.feed(Work("", 1, 10, "kernels"), 300)
    assert estimate.left(300) is None, "other units are a new measurement"
    estimate.feed(Work("", 5, 10, "kernels"), 400)
    assert estimate.left(400) is not None
    estimate.feed(Work("", 6, 10, "kernels", unknown=True), 500)
    assert estimate.left(500) is None


def read(name: str) -> tuple[list[tuple[float, Work]], float]:
    """Return what was printed at which second, and how long all of it took."""
    *lines, last = (line.partition(" ") for line in (FOLDER / f"{name}.txt").read_text().splitlines())
    return [(float(at), work) for at, _, line in lines if (work := read_work(line))], float(last[0])


@pytest.mark.parametrize("name", [*BUILDS, "kernels"])
def test_no_estimate_of_a_real_stream_is_absurd(name: str) -> None:
    said, whole = read(name)
    estimate = Estimate()
    for at, work in said:
        estimate.feed(work, at)
        left = estimate.left(at)
        assert left is None or 0 <= left <= 3 * whole
    assert estimate.left(whole) is not None
