"""Declares the options of the server with their defaults, and decides who may reach it.

That is this machine, a proxy on it, or whoever has the token. ``python -m train serve`` and ``toolkit serve`` share the
options.
"""

import ipaddress
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from train.errors import UsageError
from train.system import output
from train.system.files import read_text

TOKEN: Final = "TOOLKIT_SERVE_TOKEN"  # noqa: S105 - the name of a variable
SHORTEST: Final = 16
"""Characters of a token, at least."""

Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; other than loopback, it needs a token.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"File with the token that requests must have; by default, {TOKEN} has it."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host", metavar="NAME", help="Name by which a proxy of this machine passes requests on; repeatable."
    ),
]
LogFormat = Annotated[output.LogFormat, typer.Option(help="How requests are listed on standard error.")]
Batch = Annotated[int, typer.Option(min=1, help="Most images that are computed at a time.")]
Wait = Annotated[float, typer.Option(min=0, help="Milliseconds that an image waits for others.")]
Queue = Annotated[int, typer.Option(min=1, help="Most images that wait; more are refused by status 503.")]
MaxMib = Annotated[int, typer.Option(min=1, help="Largest request, in MiB.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Largest image, in pixels.")]
Timeout = Annotated[float, typer.Option(min=0.001, help="Seconds for a request, and again for its answer.")]

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")

HOST: Final = "127.0.0.1"
PORT: Final = 8000
BATCH: Final = 64
WAIT: Final = 2
QUEUE: Final = 256
MAX_MIB: Final = 16
MAX_PIXELS: Final = 25_000_000
TIMEOUT: Final = 30

PROXIES: Final = ("127.0.0.1", "::1")
"""Addresses of a proxy on this machine."""

SPARE_SECONDS: Final = 10
"""How much longer than its requests a server may take to end."""


def count_grace(timeout: float = TIMEOUT) -> float:
    """Return the seconds within which a server ends: a request, its answer, and some more."""
    return 2 * timeout + SPARE_SECONDS


def read_token(file: Path | None) -> str:
    """Return the token of a file or of the environment; empty if there is none. Raises a UsageError for a short one."""
    try:
        text = read_text(file) if file else os.environ.get(TOKEN, "")
    except (OSError, ValueError) as error:
        raise UsageError(f"the token file {file} cannot be read", why=str(error)) from error
    token = text.strip()
    if len(lines := token.splitlines()) > 1:
        raise UsageError(
            f"{f'the token file {file}' if file else TOKEN} has {len(lines)} lines; one token is wanted",
            remedy="leave the token alone in it",
        )
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


def read_hosts(names: Sequence[str]) -> frozenset[str]:
    """Return names of hosts as they are compared. Raises a UsageError for what is no name of a host."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"--allow-host {name!r} is no name of a host",
                remedy="give one name each, without port and path; repeat the option: --allow-host A --allow-host B",
            )
    return frozenset(name.lower() for name in names)


def find_proxies(routes: Path = Path("/proc/net/route")) -> tuple[str, ...]:
    """Return the addresses of a proxy on the machine of a container, whose requests come from the gateway."""
    rows = [line.split() for line in routes.read_text().splitlines()[1:]] if routes.exists() else []
    gateways = [bytes.fromhex(gateway) for _, target, gateway, *_ in rows if not int(target, 16) and int(gateway, 16)]
    order = -1 if sys.byteorder == "little" else 1
    return (*PROXIES, *(str(ipaddress.ip_address(gateway[::order])) for gateway in gateways))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
