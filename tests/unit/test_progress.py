"""The line, and what a terminal or a log gets of it."""

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.console import Console, fold
from train.system import progress
from train.system.progress import Status, Work, measure, render

FULL = Work("Compiling tensorflow/core/kernels/reduce.cc", 1234, 33438, "actions")


@given(st.text(), st.integers(1, 200), st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.integers(0, 10**9))
def test_no_line_is_wider_than_the_terminal(
    text: str, width: int, spent: float, left: float | None, total: int
) -> None:
    line = render("wheel", Work(text, total // 3, total), spent, left, width)
    assert measure(line) <= width
    assert not re.search(r"[\x00-\x1f\x7f]", line)


STEP = Work("epoch 11, loss 0.0313, accuracy 99.4%, 2170 images/s", 225, 440, "steps")


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (60, "train    [225/440] 51 %  10s, 6s left  epoch 11, loss…"),
        (79, "train    [225/440] 51 %  10s, 6s left  epoch 11, loss 0.0313, accuracy 99.4%…"),
        (120, "train    [225/440] 51 %  10s, 6s left  epoch 11, loss 0.0313, accuracy 99.4%, 2170 images/s"),
    ],
)
def test_a_line_is_cut_between_words(width: int, line: str) -> None:
    assert render("train", STEP, 10, 6, width) == line


def test_long_work_says_when_it_ends_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "localtime", lambda at: time.gmtime(round(at - time.time()) + 3600))
    text = "epoch 11, loss 0.0313, accuracy 99.4%, 2170 images/s"
    line = f"train    [225/440] 51 %  10m 00s, 10m 00s left, until 01:10  {text}"
    assert render("train", STEP, 600, 600, 120) == line
    assert "until" not in render("train", STEP, 600, 600, 79) + render("train", STEP, 600, 599, 120)


@contextlib.contextmanager
def _terminal(columns: int = 80) -> Iterator[tuple[int, io.TextIOWrapper]]:
    controller, terminal = pty.openpty()
    _resize(terminal, columns)
    with os.fdopen(terminal, "w") as stream:
        try:
            yield controller, stream
        finally:
            os.close(controller)


def _resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def _read(controller: int) -> str:
    said = b""
    while select.select([controller], [], [], 0.2)[0]:
        said += os.read(controller, 1 << 16)
    return said.decode()


def see(output: str) -> list[str]:
    """Return the lines that a terminal shows after an output, as far as the line of the work needs one."""
    lines = []
    for raw in output.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in raw.split("\r"):
            new, erased, rest = part.partition("\x1b[K")
            shown = new + rest if erased else part + shown[len(part) :]
        lines.append(shown)
    return lines


def test_a_line_that_stays_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said = "epoch 17/60  loss 0.0608  accuracy 98.15%  test loss 0.1618  test accuracy 96.11%  4549 images/s"
    with _terminal(80) as (_, stream):
        lines = Status("train", stream=stream).fold(said).splitlines()
    assert max(map(len, lines)) < 80
    assert " ".join(lines).split() == said.split()
    assert Status("train", stream=io.StringIO()).fold(said) == said


def test_a_terminal_has_one_line_and_none_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
    with _terminal() as (controller, stream), Status("wheel", stream=stream) as status:
        for done in (1, 2, 3):
            status.show(Work(f"x{done}", done, 10))
        assert see(_read(controller)) == ["wheel    [3/10] 30 %  0s, 0s left  x3"]
        status.say("a warning")
        status.show(Work("x4", 4, 10))
        assert see(_read(controller)) == ["a warning", "wheel    [4/10] 40 %  0s, 0s left  x4"]
        status.clear()
        assert see(_read(controller)) == [""]


@pytest.mark.parametrize(("term", "mode"), [("dumb", "auto"), ("xterm", "plain")])
def test_dumb_terminals_and_screen_readers_get_lines(
    term: str, mode: progress.Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.05)
    with _terminal() as (controller, stream):
        with Status("wheel", mode, stream=stream) as status:
            status.show(FULL)
            time.sleep(0.2)
        said = _read(controller)
    assert "\x1b" not in said
    assert said.replace("\r\n", "").count("\r") == 0
    assert said.splitlines()[0] == "wheel    [1,234/33,438] 4 %  0s  Compiling tensorflow/core/kernels/reduce.cc"


def test_a_log_gets_the_same_text_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.LINE_SECONDS == 60
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.2)
    stream = io.StringIO()
    with Status("wheel", stream=stream) as status:
        for done in range(1, 14):
            status.show(Work(f"x{done}", done, 20))
            time.sleep(0.05)
    lines = stream.getvalue().splitlines()
    assert 2 <= len(lines) <= 3
    assert all(re.fullmatch(r"wheel    \[\d+/20\] \d+ %  \ds(, \ds left)?  x\d+", line) for line in lines)


def test_what_the_console_says_stands_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
    with _terminal() as (controller, stream):
        monkeypatch.setattr(sys, "stderr", stream)
        console = Console()
        with contextlib.suppress(RuntimeError), console.follow("pull"):
            progress.report(Work("x", 1, 2, "bytes"))
            console.say("registry answered")
            progress.report(Work("x", 2, 2, "bytes"))
            raise RuntimeError
        console.fail("it broke off")
        assert [line.replace("\x1b[31m", "").replace("\x1b[0m", "") for line in see(_read(controller))] == [
            "registry answered",
            "error: it broke off",
            "",
        ]


PROGRAM = """
import sys, time
from toolkit.cli.command import command
from toolkit.base.console import Console
from train.system import signals
from train.system.progress import Work

@command()
def wait(session):
    with session.console.follow("wheel") as status:
        status.show(Work("Compiling x", 1, 10))
        print("ready", flush=True)
        if "fail" in sys.argv:
            from toolkit.base.errors import BuildError
            raise BuildError("it failed", remedy="try again")
        time.sleep(60)

import typer
app = typer.Typer()
app.command()(wait)

def main():
    code = app([], standalone_mode=False)
    signals.check()
    return code

signals.lead(main)
"""


def _run(*words: str, act: Callable[[int], object] = lambda _: None) -> tuple[int, str]:
    with _terminal() as (controller, stream):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words],
            stdout=subprocess.PIPE,
            stderr=stream,
            env={**os.environ, "TERM": "xterm"},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        act(process.pid)
        code = process.wait(30)
        process.stdout.close()
        return code, _read(controller)


def test_an_error_leaves_a_clean_terminal() -> None:
    code, said = _run("fail")
    assert code
    assert "Compiling x" in said
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in see(said)]
    assert shown[0] == "error: it failed"
    assert not any("Compiling" in line for line in shown)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_clean_terminal(number: signal.Signals) -> None:
    code, said = _run(act=lambda pid: os.kill(pid, number))
    assert code == 130
    assert "Compiling x" in said
    shown = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in see(said)]
    assert shown[0].startswith("interrupted")
    assert not any("Compiling" in line for line in shown)


def test_text_is_folded_between_words_and_a_command_stays_whole() -> None:
    command = "toolkit install --into my-env --card 12.0"
    text = f"  because    {'word ' * 12}end\n  command    {command}  (about 5 minutes on this machine)\nshort"
    assert fold(text, 50).split("\n") == [
        "  because    word word word word word word word",
        "             word word word word word end",
        f"  command    {command}",
        "             (about 5 minutes on this machine)",
        "short",
    ]
