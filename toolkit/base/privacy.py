"""Leaves out of what people publish what tells of the machine on which it was made."""

import getpass
import re
import socket
from pathlib import Path


def leave_out_places(text: str) -> str:
    """Return text with the current folder as ``.``, and the home of the user as ``~``."""
    for place, instead in ((Path.cwd(), "."), (Path.home(), "~")):
        if len(place.parts) > 1:
            text = re.sub(rf"{re.escape(str(place))}(?![\w-])", instead, text)
    return text


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
