"""The options of the server that ``python -m train serve`` and ``toolkit serve`` share, with their defaults."""

from pathlib import Path
from typing import Annotated, Final

import typer

from train.service.guard import TOKEN

Host = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Address to listen on; other than loopback, it needs a token.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"File with the token that requests must have; by default, {TOKEN} has it."),
]
Batch = Annotated[int, typer.Option(min=1, help="Most images that are computed at a time.")]
Wait = Annotated[float, typer.Option(min=0, help="Milliseconds that an image waits for others.")]
Queue = Annotated[int, typer.Option(min=1, help="Most images that wait; more are refused by status 503.")]
MaxMib = Annotated[int, typer.Option(min=1, help="Largest request, in MiB.")]
MaxPixels = Annotated[int, typer.Option(min=1, help="Largest image, in pixels.")]
Timeout = Annotated[float, typer.Option(min=0.001, help="Seconds for a request, and again for its answer.")]

HOST: Final = "127.0.0.1"
PORT: Final = 8000
BATCH: Final = 64
WAIT: Final = 2
QUEUE: Final = 256
MAX_MIB: Final = 16
MAX_PIXELS: Final = 25_000_000
TIMEOUT: Final = 30

SPARE_SECONDS: Final = 10
"""How much longer than its requests a server may take to end."""


def count_grace(timeout: float = TIMEOUT) -> float:
    """Return the seconds within which a server ends: a request, its answer, and some more."""
    return 2 * timeout + SPARE_SECONDS
