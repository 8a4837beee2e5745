"""Reads logs of any size and form in blocks: without colors, in UTF-8, one line for each redraw of a progress bar."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

BLOCK: Final = 1 << 20
_LONGEST: Final = 4 << 20
"""A line of more bytes is read in pieces."""
_OVERLAP: Final = 4096
_COLORS: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|\\(?:u001b|x1b|033)\[[0-9;]*m"
)
"""Commands to a terminal, and how JSON and Python write them."""
_BOMS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True)
class Block:
    text: bytes
    numbered: bytes  # of the same length; only ends of lines that an editor counts are ``\n``
    first: int  # number of the first line


def read(stream: BinaryIO) -> Iterator[Block]:
    number = 1
    for piece in _cut(_decode(stream)):
        text = _COLORS.sub(b"", piece) if b"\x1b" in piece or b"\\" in piece else piece
        numbered = text.replace(b"\r\n", b"\n").replace(b"\x08", b"\r")
        yield Block(numbered.replace(b"\r", b"\n"), numbered, number)
        number += numbered.count(b"\n")


def _decode(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a stream in UTF-8. UTF-16 without a mark at its start is read as far as it is ASCII."""
    data = stream.read(BLOCK)
    name = next((name for mark, name in _BOMS if data.startswith(mark)), "")
    decoder = codecs.getincrementaldecoder(name)(errors="replace") if name else None
    while data:
        text = decoder.decode(data).encode("utf-8", "replace") if decoder else data
        yield text.replace(b"\x00", b"") if b"\x00" in text else text
        data = stream.read(BLOCK)


def _cut(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces that end where a line ends, or after a part of a line that is too long."""
    rest = b""
    for block in blocks:
        data = rest + block
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if end:
            yield data[:end]
            rest = data[end:]
        elif len(data) < _LONGEST:
            rest = data
        else:
            yield data
            rest = data[-_OVERLAP:]
    if rest:
        yield rest
