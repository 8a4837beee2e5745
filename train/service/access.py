"""Writes one line for each request: who asked for what, how it was answered, and why it was refused."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from train.system import output

Form = Literal["text", "json"]
FORMS: Final = get_args(Form)

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


def write(access: Access, form: Form) -> None:
    """Write a request on standard error. A line of JSON has the names of the fields of :class:`Access`."""
    WRITERS[form](datetime.now(UTC).isoformat(timespec="milliseconds"), access)


def _write_text(time: str, access: Access) -> None:
    said = (
        f"{time} {access.client} {access.method} {access.path[:LONGEST]} {access.status} {access.seconds * 1000:.0f} ms"
    )
    output.say(output.inline(said + (f": {access.refused}" if access.refused else "")))


def _write_json(time: str, access: Access) -> None:
    value = {"time": time, **asdict(access), "path": access.path[:LONGEST], "seconds": round(access.seconds, 6)}
    output.say(output.dump_json(value))


WRITERS: Final[Mapping[Form, Callable[[str, Access], None]]] = {"text": _write_text, "json": _write_json}
