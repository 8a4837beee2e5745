"""Kills a command at moments that are chosen at random, and lets the next one complete what it left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests import interrupted
from toolkit.__main__ import main
from toolkit.cli import app  # noqa: F401 - the forked commands need not load it

COUNT = 6

Run = Callable[[int, int], interrupted.Ended]


def make_variables(folder: Path) -> dict[str, str]:
    """Return the variables of a command whose state folder is in another folder, and which reaches no engine."""
    usual = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
    return {**usual, "DOCKER_HOST": "tcp://127.0.0.1:1", "NO_COLOR": "1", "TOOLKIT_STATE": str(folder / "state")}


def kill(run: Run, reset: Callable[[], object], judge: Callable[[interrupted.Ended], object]) -> None:
    """Kill a command at moments that are chosen at random, judge what it left, and let the next one complete it."""
    for _ in range(2):  # what it caches is there from the second one on
        reset()
        unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error

    def again(moment: int, number: int) -> interrupted.Ended:
        reset()
        ended = run(moment, number)
        judge(ended)
        completed = run(0, 0)
        assert completed.code == 0, (moment, ended, completed)
        judge(completed)
        return ended

    found = interrupted.sweep(COUNT, unbroken.count, again, lambda _: True, (signal.SIGKILL, signal.SIGTERM))
    assert {*found} <= interrupted.RIGHT


def command(folder: Path, *words: str, state: Path) -> Run:
    """Return what runs the program in a folder. The state folder is below `state`."""
    variables = make_variables(state)
    return lambda moment, number: interrupted.fork(main, ["toolkit", *words], folder, variables, moment, number)


def list_hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []


def is_done(ended: interrupted.Ended) -> bool:
    return ended.code == 0 and ended.count > 0
