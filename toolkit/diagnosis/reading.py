"""Reads logs of any size and form in blocks: without colors, in UTF-8, one line for each redraw of a progress bar.

A message that its program broke over several lines is one line.
"""

import codecs
import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from toolkit.base.errors import UsageError
from train.system import budget

BLOCK: Final = 1 << 20
_LONGEST: Final = 4 << 20
"""A line of more bytes is read in pieces."""
_OVERLAP: Final = 4096
_COLORS: Final = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|\\(?:u001b|x1b|033)\[[0-9;]*m"
)
"""Commands to a terminal, and how JSON and Python write them."""
_CONTROLS: Final = bytes({*range(32), 127} - {*b"\a\b\t\n\v\f\r\x1b"})
_MOST_CONTROLS: Final = 0.05
_START: Final = 1024
_BOMS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_GZIP: Final = b"\x1f\x8b\x08"
_FORE: Final = rb"(?:#\d+ \d+\.\d+(?= ))?"
"""What an engine puts in front of each line of an image's build."""
_BLANKS: Final = rb"(?:\n" + _FORE + rb"[ \t]*(?=\n))*"
_BROKEN: Final = (
    # CMake breaks each paragraph of a message.
    (
        b"CMake Error at",
        re.compile(
            rb"CMake Error at [^\n]*:"
            + _BLANKS
            + rb"\n"
            + _FORE
            + rb"([ \t]+)\S[^\n]*(?:\n"
            + _FORE
            + rb"\1(?=\S)[^\n]+)*"
            # A sentence goes on in a block of its own that names a file or folder, and below that.
            + rb"(?:(?<![.!?])"
            + _BLANKS
            + rb"\n"
            + _FORE
            + rb"\1[ \t]+\S[^\n]*(?:(?<![.:!?])"
            + _BLANKS
            + rb"\n"
            + _FORE
            + rb"\1(?=\S)[^\n]+)?)?"
        ),
    ),
    # uv breaks its sentences at the width of the terminal.
    ("▶".encode(), re.compile("▶ [^\n]+(?:\n {6}(?=[^\\s│├╰])[^\n]+)+".encode())),
    (b"hint: ", re.compile("(?m)^ {6}hint: [^\n]+(?:\n {6}(?!hint: )(?=[^\\s│├╰])[^\n]+)+".encode())),
    # `pip show` says name and version in two lines, and a version stands below what asked for it.
    (b"\nVersion: ", re.compile(rb"(?m)^Name: [\w.-]+\nVersion: [^\n]+")),
    (
        b".__version__",
        re.compile(
            rb"\w\.__version__\)?['\"]?[ \t]*\n(?:Out\[\d+\]:[ \t]*)?['\"]?\d+\.\d[\w.+-]*['\"]?[ \t]*(?=\n|\Z)"
        ),
    ),
    # XLA names the operation, and PyTorch its CUDA, in the next line.
    (b"convolution algorithm for:", re.compile(rb"convolution algorithm for:[ \t]*\n[ \t]*%[^\n]+")),
    (b"was used to compile", re.compile(rb"was used to compile[ \t]*\n[ \t]*PyTorch[^\n]*")),
    # pip, terminals and web pages break before a name that is long.
    (b"ndefined ", re.compile(rb"(?:ndefined symbol:|ndefined reference to)[ \t]*\n[ \t]*[^\n]+")),
)
"""Messages that are broken over several lines: a text that each of them has, and how they look."""
_BREAK: Final = re.compile(rb"[ \t]*\n" + _FORE + rb"[ \t]*")
_ARCHIVES: Final = ((b"PK\x03\x04", "zip"), (b"\xfd7zXZ\x00", "xz"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"))


@dataclass(frozen=True)
class Block:
    text: bytes  # messages that were broken are one line, and what they lack in length follows it as spaces
    numbered: bytes  # of the same length; only ends of lines that an editor counts are ``\n``
    first: int  # number of the first line


def read(stream: BinaryIO) -> Iterator[Block]:
    """Yield the blocks of a log. Raises UsageError if it is not text, or packed in another way than by gzip."""
    number = 1
    for piece in _cut(_decode(_unpack(stream))):
        text = _COLORS.sub(b"", piece) if b"\x1b" in piece or b"\\" in piece else piece
        if number == 1 and _is_binary(text):
            raise UsageError("this is no log: it is not text", remedy="give what the program printed when it failed")
        # To look for one character is quick, and most logs have none of these.
        numbered = text.replace(b"\r\n", b"\n") if b"\r" in text else text
        numbered = numbered.replace(b"\x08", b"\r") if b"\x08" in numbered else numbered
        yield Block(_join(numbered.replace(b"\r", b"\n")), numbered, number)
        number += numbered.count(b"\n")


def _join(text: bytes) -> bytes:
    """Return a text of the same length in which messages that were broken over several lines are one line each."""
    for mark, message in _BROKEN:
        if mark in text:
            text = message.sub(lambda found: _BREAK.sub(b" ", found[0]).ljust(len(found[0])), text)
    return text


def _is_binary(text: bytes) -> bool:
    """Return whether the start of a log has more control characters than any text has."""
    start = text[:_START]
    return len(start) - len(start.translate(None, _CONTROLS)) > len(start) * _MOST_CONTROLS


def _unpack(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a stream, and what gzip packed in it as far as it is whole.

    Raises UsageError if it is packed in another way, and DataError if it unpacks to far more than a log does.
    """
    data = stream.read(BLOCK)
    packed = zlib.decompressobj(31) if data.startswith(_GZIP) else None
    taken, given = len(data), 0
    for mark, name in _ARCHIVES:
        if data.startswith(mark):
            raise UsageError(f"the log is packed by {name}", remedy="unpack it first; gzip alone is read as it is")
    while data:
        if packed is None:
            yield data
            data = stream.read(BLOCK)
            continue
        try:
            text = packed.decompress(data, BLOCK)
            given += len(text)
            budget.require("the log", given, taken)
            yield text
            if packed.eof:
                data, packed = packed.unused_data, zlib.decompressobj(31)
            else:
                data = packed.unconsumed_tail
            if not data:
                data = stream.read(BLOCK)
                taken += len(data)
        except zlib.error:
            return
    if packed is not None:
        yield packed.flush()


def _decode(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield bytes in UTF-8. UTF-16 without a mark at its start is read as far as it is ASCII."""
    first = next(blocks, b"").removeprefix(codecs.BOM_UTF8)
    name = next((name for mark, name in _BOMS if first.startswith(mark)), "")
    decoder = codecs.getincrementaldecoder(name)(errors="replace") if name else None
    for data in itertools.chain([first], blocks):
        text = decoder.decode(data).replace("\ufeff", "").encode("utf-8", "replace") if decoder else data
        yield text.replace(b"\x00", b"") if b"\x00" in text else text


def _cut(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces that end where a line ends, after a part of a line that is too long, or where the log ends."""
    rest = piece = b""
    for block in blocks:
        data = rest + block
        end = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if not end and len(data) < _LONGEST:
            rest = data
            continue
        if piece:
            yield piece
        piece, rest = (data[:end], data[end:]) if end else (data, data[-_OVERLAP:])
    if piece or rest:
        yield piece + rest
