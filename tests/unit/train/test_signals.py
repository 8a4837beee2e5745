import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from train import cli, command_line
from train.system import signals


class Thing:
    """Something that can be forgotten."""


def lose() -> int:
    """Let the signal come in a callback of a weak reference, whose exceptions Python only prints."""
    thing = Thing()
    watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGTERM))
    del thing
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        time.sleep(0.01)
    del watched
    return 0


def replace() -> int:
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise AttributeError("an object has no such attribute") from error
    return 0


def swallow() -> int:
    with suppress(BaseException):
        signal.raise_signal(signal.SIGHUP)
    return 0


@pytest.mark.parametrize("program", [lose, replace, swallow])
def test_no_signal_is_lost(program: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    assert signals.run(program) == 130
    assert time.monotonic() - began < 20
    assert capsys.readouterr() == ("", "interrupted\n")


def test_handlers_are_those_of_before(capsys: pytest.CaptureFixture[str]) -> None:
    before = [signal.getsignal(number) for number in signals.NUMBERS]
    assert signals.run(lose) == 130
    assert [signal.getsignal(number) for number in signals.NUMBERS] == before
    assert signals.run(lambda: 3) == 3
    assert capsys.readouterr().err == "interrupted\n"


def test_the_first_signal_waits_for_an_answer_and_a_second_one_does_not() -> None:
    done: list[str] = []

    def ask(*numbers: signal.Signals) -> int:
        with signals.deferring():
            for number in numbers:
                signal.raise_signal(number)
            done.append("answered")
        done.append("went on")
        return 0

    assert signals.run(lambda: ask(signal.SIGINT)) == 130
    assert done == ["answered"]
    assert signals.run(lambda: ask(signal.SIGINT, signal.SIGTERM)) == 130
    assert done == ["answered"]


@pytest.mark.parametrize(
    ("second", "code"), [(signal.SIGTERM, 3), (signal.SIGINT, signals.INTERRUPTED)], ids=["repeated", "another"]
)
def test_a_scheduler_may_repeat_its_signal_while_a_step_ends(second: signal.Signals, code: int) -> None:
    def train() -> int:
        with signals.listen() as stop:
            stop.begin_saving()
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(second)
            assert stop() == "SIGTERM"
            return 3

    assert signals.run(train) == code


def test_an_interrupt_while_options_are_read_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def resolve(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(command_line, "resolve", resolve)
    assert cli.main(["digits", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


@pytest.mark.parametrize("program", ["from toolkit.__main__ import main", "from train.__main__ import start as main"])
def test_a_program_that_is_not_yet_loaded_ends_by_the_signal_without_a_word(program: str) -> None:
    code = f"""
import signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "train.system.signals":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
{program}
from train.__main__ import lead
main() if main.__module__ == "toolkit.__main__" else lead(main)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
