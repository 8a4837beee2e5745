"""Leaves out of what people publish what tells of the machine on which it was made."""

import getpass
import re
import socket
from pathlib import Path


def leave_out_places(text: str) -> str:
    """Return text with the current folder as ``.``, and the home of the user as ``~``."""
    return leave_out_home(_replace(text, Path.cwd(), "."))


def leave_out_home(text: str) -> str:
    """Return text with the home of the user as ``~``."""
    return _replace(text, Path.home(), "~")


def find_in_home(location: str) -> str:
    """Return the path of a location that :func:`leave_out_home` has changed, and any other as it is."""
    return str(Path(location).expanduser()) if location.startswith("~/") else location


def _replace(text: str, place: Path, instead: str) -> str:
    return re.sub(rf"{re.escape(str(place))}(?![\w-])", instead, text) if len(place.parts) > 1 else text


def leave_out_persons(text: str) -> str:
    """Return text without the folders, the user and the host of this machine."""
    text = leave_out_places(text)
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    host = socket.gethostname()
    for name, instead in ((host, "HOST"), (host.partition(".")[0], "HOST"), (user, "USER")):
        if name not in {"", "root", "localhost"}:
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", instead, text)
    return text
