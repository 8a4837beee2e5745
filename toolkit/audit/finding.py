"""One thing that was looked at and what became of it: the same for a wheel, an environment, an image and a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolkit.errors import CheckError

State = Literal["ok", "fail", "absent"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        id: stable name.
        state: ``ok``; ``fail``: it is another than recorded; ``absent``: not on this machine, so nothing is known.
        evidence: what was seen.
    """

    id: str
    state: State
    evidence: str


def judge(name: str, holds: bool, evidence: str) -> Finding:
    """A finding that holds or does not."""
    return Finding(id=name, state="ok" if holds else "fail", evidence=evidence)


def miss(name: str, evidence: str) -> Finding:
    """A finding about what is not here."""
    return Finding(id=name, state="absent", evidence=evidence)


def below(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a link of the chain, under its name: ``image.labels``."""
    return [replace(item, id=f"{name}.{item.id}") for item in findings]


def summarize(findings: Sequence[Finding]) -> str:
    """How many of which, in words."""
    count = {state: sum(item.state == state for item in findings) for state in ("ok", "fail", "absent")}
    parts = [f"{count['ok']} of {len(findings)} findings hold"]
    parts += [f"{count['absent']} not on this machine"] if count["absent"] else []
    parts += [f"{count['fail']} do not hold"] if count["fail"] else []
    return ", ".join(parts)


def require(findings: Sequence[Finding], *, remedy: str, strict: bool = False) -> None:
    """Refuse what does not hold.

    Args:
        findings: all that was looked at.
        remedy: what the user can do.
        strict: what is not on this machine counts as well.

    Raises:
        CheckError: something does not hold.
    """
    wrong = [item for item in findings if item.state == "fail" or (strict and item.state == "absent")]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(findings)} findings do not hold",
            why="; ".join(f"{item.id}: {item.evidence}" for item in wrong),
            remedy=remedy,
        )
