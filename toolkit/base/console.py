"""Prints results on standard output, and everything else on standard error, as cargo, uv and docker buildx do."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TextIO

from toolkit.base.errors import PreflightError
from train.system import progress
from train.system.output import clean, dump_json

_START = re.compile(r"\s*(?:[\w-]+\s{2,}|(?:error|why|try|note|warning):\s+)?")
_COMMAND = re.compile(r"(?:toolkit|docker|uv|pip|python|conda|sudo|export|\.?[\w./-]+/bin/\S+) ")
_BOLD, _DIM, _RED, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"


@dataclass
class Console:
    json: bool = False  # print the result as one JSON object at the end
    verbosity: int = 0  # -1 errors only, 0 normal, 1 with details
    display: progress.Mode = "auto"  # how the line of long work is shown
    _value: dict[str, Any] = field(default_factory=dict)

    def say(self, text: str) -> None:
        if self.verbosity >= 0:
            _print_error(_fold_for(sys.stderr, clean(text)))

    def detail(self, text: str) -> None:
        if self.verbosity >= 1:
            _print_error(_paint(clean(text), _DIM))

    def heading(self, step: str, text: str) -> None:
        if self.verbosity >= 0:
            folded = _fold_for(sys.stderr, f"{step:<8} {clean(text)}")
            _print_error(_paint(folded[:8], _BOLD) + folded[8:])

    @contextmanager
    def timed(self, step: str, text: str) -> Iterator[progress.Status]:
        self.heading(step, f"{text} …")
        start = monotonic()
        with self.follow(step) as status:
            status.show(progress.Work(text))
            yield status
        self.heading(step, f"done in {monotonic() - start:.1f} s")

    def follow(self, step: str) -> progress.Status:
        """Return the line of long work, to be shown while a block runs."""
        return progress.Status(step, self.mode)

    def fail(self, text: str) -> None:
        folded = _fold_for(sys.stderr, f"error: {clean(text)}")
        _print_error(_paint(folded[:6], _RED) + folded[6:])

    def ask(self, question: str) -> bool:
        """Ask on the terminal, also with --quiet, and return whether the answer is yes. The end of input means no."""
        sys.stderr.write(f"{clean(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def add(self, value: Mapping[str, Any]) -> None:
        """Add fields to the result of --json."""
        self._value.update(value)

    def result(self, value: Mapping[str, Any], text: str, *, prose: bool = False) -> None:
        """Print a result. On a terminal, ``prose`` is folded between words."""
        if self.json:
            self.add(value)
        else:
            _print_result(_fold_for(sys.stdout, clean(text)) if prose else clean(text))

    def close(self, error: dict[str, object] | None = None) -> None:
        if self.json:
            value = {**self._value, **({"error": error} if error else {})}
            _print_result(dump_json(value, indent=2, sort_keys=True))

    @property
    def mode(self) -> progress.Mode:
        """How progress is shown, also by a job whose own terminal does not know this one."""
        if self.verbosity < 0:
            return "quiet"
        dumb = self.display == "auto" and sys.stderr.isatty() and not progress.is_live("auto", sys.stderr)
        return "plain" if dumb else self.display


def fold(text: str, width: int) -> str:
    """Return text with its lines folded between words, each below where its first words begin.

    A command stays whole, so that it can be copied; what is said of it after two spaces goes to a line of its own.
    """
    return "\n".join(_fold_line(line, width) for line in text.split("\n"))


def _fold_line(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    start = _START.match(line)[0]  # type: ignore[index] # it matches every text
    indent, rest = " " * len(start), line[len(start) :]
    if len(start) > width // 2:
        return line
    if _COMMAND.match(rest):
        command, _, remark = rest.partition("  (")
        return f"{start}{command}" + (f"\n{_fold_line(f'{indent}({remark}', width)}" if remark else "")
    folded = textwrap.wrap(rest, width - len(start), break_long_words=False, break_on_hyphens=False)
    return start + f"\n{indent}".join(folded)


def _fold_for(stream: TextIO, text: str) -> str:
    return fold(text, shutil.get_terminal_size((80, 24)).columns) if stream.isatty() else text


def _print_error(text: str) -> None:
    if progress.say(text):
        return
    # If the reader is gone, as in `toolkit up 2>&1 | head`, the work continues.
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - this is the place that prints


def _print_result(text: str) -> None:
    try:
        print(text, flush=True)  # noqa: T201
    except BrokenPipeError:
        # The exit code stays the same. Without this, Python would print an error when it flushes at exit.
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise PreflightError("cannot write to standard output", why=error.strerror or str(error)) from error


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _paint(text: str, code: str) -> str:
    # https://no-color.org: any non-empty value turns color off.
    return f"{code}{text}{_RESET}" if sys.stderr.isatty() and not os.environ.get("NO_COLOR") else text
