"""Writes one line for each request: who asked for what, how it was answered, and why it was refused."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Final

from train.system import output
from train.system.output import LogFormat

LONGEST: Final = 200
"""Characters that are shown of a path and of a host, which may be as long as the head of a request may be."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """A request that was answered, or whose sender has left."""

    client: str  # an address; behind a proxy of this machine, the one that it names in X-Forwarded-For
    host: str  # by which it was asked, with its port if one was sent
    method: str
    path: str  # without the query, and as it was sent
    status: int
    seconds: float
    refused: str = ""  # why; empty for a request that was served


def write(access: Access, form: LogFormat) -> None:
    """Write a request on standard error. A line of JSON has the names of the fields of :class:`Access`."""
    path = access.path[:LONGEST]
    if form == "json":
        shown = replace(access, host=access.host[:LONGEST], path=path, seconds=round(access.seconds, 6))
        output.say_event("request", **asdict(shown))
        return
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    said = f"{time} {access.client} {access.method} {path} {access.status} {access.seconds * 1000:.0f} ms"
    output.say(output.inline(said + (f": {access.refused}" if access.refused else "")))
