"""One fact about this machine, a verdict on it, and what to do about it (after cog's ``doctor``)."""

from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fact about this machine.

    Attributes:
        id: stable name.
        level: ``ok``; ``warn``: something asked for will not work, the rest will; ``fail``: nothing will.
        summary: the fact.
        remedy: what to do about it.
        facts: the numbers behind it.
    """

    id: str
    level: Level
    summary: str
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
