"""Decides who may reach the server: programs of this machine, or whoever has the token. The toolkit uses it too."""

import ipaddress
import os
from pathlib import Path
from typing import Final

from train.errors import UsageError
from train.system.files import read_text

TOKEN: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST: Final = 16
"""Characters of a token, at least."""


def read_token(file: Path | None) -> str:
    """Return the token of a file or of the environment; empty if there is none. Raises a UsageError for a short one."""
    try:
        text = read_text(file) if file else os.environ.get(TOKEN, "")
    except (OSError, ValueError) as error:
        raise UsageError(f"the token file {file} cannot be read", why=str(error)) from error
    token = text.strip()
    if (token or file) and (len(token) < SHORTEST or not token.isascii() or not token.isprintable()):
        raise UsageError(
            "the token is not fit",
            why=f"it needs at least {SHORTEST} characters, all of them ASCII and visible",
            remedy="python -c 'import secrets; print(secrets.token_urlsafe())'",
        )
    return token


def require_guard(host: str, token: str, *, published: bool) -> None:
    """Raise a UsageError for an address that others can reach, if there is no token."""
    if not token and not published and not is_loopback(host):
        raise UsageError(
            f"the address {host} can be reached from other machines, and there is no token",
            why="everyone who reaches it could use the network and see what it knows",
            remedy=f"put a token into {TOKEN} or a file of --token-file, or leave out --host",
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
