"""Whenever a signal comes, a program ends by it or finishes its work: it never ends with 0 and half of the work."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import interrupted
from tests.interrupted import Ended
from tests.tiers import weekly
from tests.unit.graft import maker
from toolkit.__main__ import main
from toolkit.cli import app  # noqa: F401 - the forked commands need not load it
from toolkit.graft import job

MEMBERS = """
dataset: digits
options: {depth: 10, epochs: 1}
grid: {seed: [0, 1, 2, 3]}
"""


def wrong(found: Counter[str]) -> set[str]:
    print(dict(found))
    return {*found} - {"whole", "129", "130", "143"}


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
    return {**usual, "DOCKER_HOST": "tcp://127.0.0.1:1", "NO_COLOR": "1", "TOOLKIT_STATE": str(tmp_path / "state")}


@pytest.fixture
def start(tmp_path: Path, variables: dict[str, str]) -> Callable[..., Callable[[int, int], Ended]]:
    def make(*arguments: str) -> Callable[[int, int], Ended]:
        argv = ["toolkit", *arguments]
        return lambda moment, number: interrupted.fork(main, argv, tmp_path, variables, moment, number)

    return make


COMMANDS = {
    "up": ("up", "digits", "--dry-run", "--engine", "host"),
    "train": ("train", "digits", "--dry-run", "--engine", "host", "--json"),
    "sweep": ("sweep", "members.yaml", "--dry-run", "--engine", "host"),
}


@pytest.mark.parametrize("count", [4, weekly(1000)])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_interrupted_while_it_plans(
    tmp_path: Path,
    variables: dict[str, str],
    start: Callable[..., Callable[[int, int], Ended]],
    name: str,
    count: int,
) -> None:
    (tmp_path / "members.yaml").write_text(MEMBERS)
    argv, run = ["toolkit", *COMMANDS[name]], start(*COMMANDS[name])
    run(0, 0)  # what it caches is there from now on
    unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error

    def branch(moments: Mapping[int, int]) -> list[tuple[int, Ended]]:
        return interrupted.branch(main, argv, tmp_path, variables, moments)

    found = interrupted.sweep_branches(count, unbroken.count, branch, lambda ended: ended.out == unbroken.out)
    assert not wrong(found)
    assert found["130"] > count / 2


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [4, weekly(1000)])
def test_a_graft_that_is_interrupted_leaves_a_whole_wheel_or_none(
    tmp_path: Path, start: Callable[..., Callable[[int, int], Ended]], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    ptxas, source = maker.write_ptxas(tmp_path), maker.make_tensorflow(tmp_path)
    monkeypatch.setattr(job, "fetch_ptxas", lambda *_: ptxas)
    monkeypatch.setattr(job, "NEEDED_BYTES", 0)
    dist = tmp_path / "dist"
    run = start("graft", "--gpu", "RTX 5090", "--wheel", str(source), "--out", str(dist))
    unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error
    (made,) = dist.iterdir()
    names = {path.name for path in made.iterdir()}

    def again(moment: int, number: int) -> Ended:
        if made.exists():
            made.rename(tmp_path / f"made-{moment}")
        ended = run(moment, number)
        left = [path for path in dist.iterdir() if not path.name.startswith(".")]
        assert all({path.name for path in each.iterdir()} == names for each in left)
        return ended

    found = interrupted.sweep(count, unbroken.count, again, lambda _: made.exists())
    assert not wrong(found)
    assert found["130"] > count / 2
