"""Prints what the job says. All of its text passes here, so that no name of a file reaches a terminal as a command.

Inside a container, people read the paths of their machine, and records keep those of the container. The toolkit uses
the module too, so it imports the standard library alone.
"""

import json
import os
import re
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

from train.system.addresses import hide

_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, except tabs and ends of lines
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\uffff"  # change the order or lines of a text
    "\ud800-\udfff\U000e0000-\U000e007f]"  # lone surrogates, and invisible letters
)
"""Characters that a terminal would obey or hide, and those that no encoding or no XML has."""


def printable(text: str) -> str:
    """Return text in which each character that a terminal could obey is replaced by a mark. Lines and tabs stay."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def inline(text: str) -> str:
    """Return text as a part of one line: each character that is not printable is escaped, as ``\\n``."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def indent(text: str) -> str:
    """Return text whose further lines are indented, so that none of them looks like a message of its own."""
    return re.sub(r"\n(?=\S)", "\n    ", text)


def clean(text: str) -> str:
    """Return text as it may be printed: without what a terminal could obey, and without credentials in addresses."""
    return hide(printable(text))


PATHS: Final = "TOOLKIT_PATHS"
"""Environment variable with a JSON object: for each mount its path inside and its path outside of the container."""


def translate(text: str) -> str:
    """Replace paths inside a container by the user's paths."""
    names = _read_mounts()
    if not names:
        return text
    # Longest first, so that the inner one of two nested mounts matches.
    inside = "|".join(re.escape(path) for path in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])(?:{inside})(?![\w-]|\.\w)", lambda match: names[match[0]], text)


def _read_mounts() -> dict[str, str]:
    try:
        value = json.loads(os.environ.get(PATHS, "{}"))
    except ValueError:
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {path: name for path, name in pairs if isinstance(name, str) and path.startswith("/") and path != "/"}


def say(text: str) -> None:
    """Print a message on standard error."""
    _write(clean(text), sys.stderr)


LogFormat = Literal["text", "json"]
"""How a program writes what happens on standard error: in lines for people, or one JSON object a line."""


def say_event(kind: str, **values: object) -> None:
    """Print what happened as one line of JSON on standard error, with the time (UTC) and the kind of the event."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    say(dump_json({"time": time, "kind": kind, **values}))


def show(text: str) -> None:
    """Print a result for people on standard output."""
    _write(clean(text), sys.stdout)


def show_json(value: object, *, indent: int | None = None) -> None:
    """Print a result for programs on standard output, exactly: JSON escapes what a terminal could obey."""
    _write(dump_json(value, indent=indent), sys.stdout)


def dump_json(value: object, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Return JSON in which all that is not visible ASCII is escaped, and credentials in addresses are hidden."""
    return hide(json.dumps(value, indent=indent, sort_keys=sort_keys).replace("\x7f", "\\u007f"))


def _write(text: str, stream: TextIO) -> None:
    """Print text at once. A closed stream is replaced, or Python would fail at exit."""
    try:
        stream.write(f"{text}\n")
        stream.flush()
    except UnicodeEncodeError:  # a terminal without these letters
        stream.write(text.encode("ascii", "replace").decode() + "\n")
        stream.flush()
    except OSError:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), stream.fileno())
