"""Defines findings, the outcomes of the checks of `doctor`, `smoke`, `verify` and `reproduce`, and their table."""

import io
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from toolkit.base.errors import CheckError
from train.system.output import printable

State = Literal["ok", "fail", "absent", "skipped", "unneeded"]
UNSIGNED = "unsigned"
LONGEST: Final = len("sha256:") + 64
"""Letters of a digest."""

_STYLES = {
    UNSIGNED: "yellow",
    "ok": "green",
    "fail": "bold red",
    "warn": "yellow",
    "absent": "yellow",
    "skipped": "dim",
    "unneeded": "dim",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    id: str  # stable name of the check
    # ``ok``, ``fail``, ``absent`` (the thing is not on this machine), ``skipped`` (the check did not run), or
    # ``unneeded`` (it does not hold, and this machine does its work without)
    state: State
    evidence: str  # what was seen, in one sentence
    remedy: str = ""
    title: str = ""  # what an ``ok`` proves, if the evidence does not say it
    advisory: bool = False  # a failure is only a warning
    facts: Mapping[str, Any] = field(default_factory=dict)  # the values behind the evidence, for programs
    seconds: float | None = None  # how long the check took, if recorded
    unsigned: bool = False  # ``absent`` is a signature alone, and the thing itself is on this machine

    @property
    def level(self) -> Literal["ok", "warn", "fail"]:
        if self.state in {"ok", "unneeded"}:
            return "ok"
        return "fail" if self.state == "fail" and not self.advisory else "warn"

    @property
    def word(self) -> str:
        """What people read."""
        if self.unsigned:
            return UNSIGNED
        return "warn" if self.state == "fail" and self.advisory else self.state

    def as_dict(self) -> dict[str, Any]:
        value = {"id": self.id, "state": self.state, "evidence": self.evidence, "remedy": self.remedy}
        return value | ({"facts": dict(self.facts)} if self.facts else {})


def check(name: str, holds: bool, evidence: str) -> Finding:
    return Finding(id=name, state="ok" if holds else "fail", evidence=evidence)


def absent(name: str, evidence: str) -> Finding:
    return Finding(id=name, state="absent", evidence=evidence)


def skipped(name: str, evidence: str) -> Finding:
    return Finding(id=name, state="skipped", evidence=evidence)


def prefix(name: str, findings: Iterable[Finding]) -> list[Finding]:
    return [replace(item, id=f"{name}.{item.id}") for item in findings]


def summarize(findings: Sequence[Finding], by: str = "") -> str:
    """Say in one line whether all holds that could be looked at, and how much that was; ``by``: on whose word."""
    count = Counter(item.word for item in findings)
    failed = count["fail"]
    parts = [f"{count['ok']} of {len(findings)} findings hold"] if count["ok"] else []
    parts += [f"{count[word]} {word}" for word in ("skipped", "absent", UNSIGNED) if count[word]]
    parts += [f"{count['warn']} warning{'s' * (count['warn'] > 1)}"] if count["warn"] else []
    noun = "" if count["ok"] else f"finding{'s' * (failed > 1)} "
    parts += [f"{failed} {noun}{say_fail(failed)}"] if failed else []
    return f"{'not verified' if failed or count[UNSIGNED] else f'verified{by}'}: {', '.join(parts)}"


def say_fail(count: int) -> str:
    return "does not hold" if count == 1 else "do not hold"


def list_wrong(findings: Sequence[Finding], *, strict: bool = False) -> list[Finding]:
    """Return the findings that fail; with ``strict`` also warnings, and those that are ``absent``."""
    return [item for item in findings if item.level == "fail" or (strict and item.state in {"fail", "absent"})]


def require(findings: Sequence[Finding], *, remedy: str, strict: bool = False) -> None:
    """Raise CheckError if `list_wrong` finds one."""
    wrong = list_wrong(findings, strict=strict)
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(findings)} findings {say_fail(len(wrong))}",
            why="; ".join(f"{item.id}: {item.evidence}" for item in wrong),
            remedy="; ".join(dict.fromkeys(item.remedy or remedy for item in wrong)),
        )


def _shorten(text: str) -> str:
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1…", printable(text))


def render(findings: Sequence[Finding], *, width: int = 0, color: bool = False) -> str:
    """Return the table of findings, as wide as the terminal, but at most 100 columns, unless ``width`` says otherwise.

    Where a digest has no room in a line, its first 12 digits stand for it.
    """
    # Importing rich takes 0.1 s, which `toolkit --help` must not pay.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = width or min(100, shutil.get_terminal_size((100, 24)).columns)
    room = width - max((len(item.word) + len(item.id) for item in findings), default=0) - 4
    shown = _shorten if room < LONGEST else printable
    timed = any(item.seconds is not None for item in findings)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "check", "result"):
        table.add_column(name, no_wrap=name != "result")
    if timed:
        table.add_column("seconds", justify="right", no_wrap=True)
    for item in findings:
        word = item.word
        text = Text(printable(item.title))
        if item.evidence:
            text.append(f"{chr(10) * bool(item.title)}{shown(item.evidence)}", _STYLES[word] if item.title else "")
        if item.remedy:
            text.append(f"\ntry: {printable(item.remedy)}")
        seconds = [] if not timed else ["" if item.seconds is None else f"{item.seconds:.2f}"]
        table.add_row(Text(word, _STYLES[word]), Text(printable(item.id)), text, *seconds)
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=color, no_color=not color, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
