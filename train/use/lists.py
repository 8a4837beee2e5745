"""Reads lists of files from standard input, as ``find`` and ``ls`` print them."""

import io
from typing import TextIO


def read_list(stream: TextIO) -> list[str]:
    """Return the names in a list: one a line, or, if there is a NUL, as ``find -print0`` separates them."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="surrogateescape")  # a name need not be text
    text = stream.read()
    names = text.split("\0") if "\0" in text else [line.rstrip("\r") for line in text.split("\n")]
    return [name for name in names if name]
