"""Writes one line for each request: who asked for what, how it was answered, and why it was refused."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from train.system import output
from train.system.output import LogFormat

LONGEST: Final = 200
"""Characters that are shown of a path, which its sender may make as long as the head of a request may be."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """A request that was answered, or whose sender has left."""

    client: str  # an address; behind a proxy of this machine, the one that it names in X-Forwarded-For
    method: str
    path: str  # without the query, and as it was sent
    status: int
    seconds: float
    refused: str = ""  # why; empty for a request that was served


def write(access: Access, form: LogFormat) -> None:
    """Write a request on standard error. A line of JSON has the names of the fields of :class:`Access`."""
    path = access.path[:LONGEST]
    if form == "json":
        output.say_event("request", **{**asdict(access), "path": path, "seconds": round(access.seconds, 6)})
        return
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    said = f"{time} {access.client} {access.method} {path} {access.status} {access.seconds * 1000:.0f} ms"
    output.say(output.inline(said + (f": {access.refused}" if access.refused else "")))
