"""Packs cubins into a fat binary, as a CUDA compiler embeds it in a library, and reads them out again.

The layout is undocumented; it is the one that others found in nvcc's output (cuda-fatbin-decompression, N. Eiling,
2023), without compression: a container of 16 bytes, then for each image a header of 64 bytes and its content.
"""

import struct
from collections.abc import Sequence

_CONTAINER = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
_ENTRY = struct.Struct("<HHIQIIHHI")
_ENTRY_BYTES = 64
_CUBIN = 2


def pack(cubins: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the fat binary of cubins, each with its SM number."""
    body = b""
    for number, content in cubins:
        padded = content + bytes(-len(content) % 8)
        head = _ENTRY.pack(_CUBIN, 0x0101, _ENTRY_BYTES, len(padded), 0, _ENTRY_BYTES, 0, 1, number)
        body += head.ljust(_ENTRY_BYTES, b"\0") + padded
    return _CONTAINER.pack(_MAGIC, 1, _CONTAINER.size, len(body)) + body


def unpack(data: bytes) -> list[bytes]:
    """Return the images of a fat binary. Raises ValueError: it is none."""
    if len(data) < _CONTAINER.size or _CONTAINER.unpack_from(data)[0] != _MAGIC:
        raise ValueError("no fat binary")
    position, images = _CONTAINER.size, []
    end = position + _CONTAINER.unpack_from(data)[3]
    while position < end:
        _, _, head, size, *_ = _ENTRY.unpack_from(data, position)
        images.append(data[position + head : position + head + size])
        position += head + size
    return images
