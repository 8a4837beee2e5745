"""Finds out what tables unpack to before they are read. Their libraries believe each length that a file names."""

import mmap
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from train.system import budget

_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_TEXTS: Final = "BYTE_ARRAY"
_OFFSET: Final = 4
"""Bytes by which Arrow finds a text."""

ROWS: Final = 256
"""Rows that are unpacked at once: each may be as large as all of a page."""

_PADDING: Final = 100
"""Bytes by which old writers named a column too short, and which Arrow adds."""

# Numbers of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_2 = 2, 3, 5, 7, 8
_DICTIONARIES: Final = {2, 8}  # of the encodings
_SHARED: Final = 7  # the encoding in which a text has only what the one before it lacks


def check(path: Path, kind: str) -> None:
    """Raise a DataError if a Parquet or Arrow file would take more space than a file of its size may."""
    size = path.stat().st_size
    for unpacked in (_measure_parquet if kind == "parquet" else _measure_arrow)(path):
        budget.require(path, unpacked, size)


def _measure_parquet(path: Path) -> Iterator[int]:
    """Yield what a file unpacks to: first the pages as their heads say, then texts that pages name again and again."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file, path.open("rb") as raw:
        content = mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ)
        columns = {column.path: column for column in map(file.schema.column, range(len(file.schema)))}
        plain, repeated, pages, longest = defaultdict[str, int](int), defaultdict[str, int](int), 0, 1
        for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
            for part in map(group.column, range(group.num_columns)):
                name, text = part.path_in_schema, 0
                column = columns[name]
                for head in _list_pages(content, part):
                    pages += head[_UNCOMPRESSED]
                    yield pages
                    text = max(text, head[_UNCOMPRESSED])
                    if _DICTIONARY in head:
                        continue
                    values, encoding = _describe_page(head)
                    if column.physical_type != _TEXTS:
                        plain[name] += values * _WIDTHS.get(column.physical_type, max(column.length, 1))
                    elif encoding not in _DICTIONARIES and encoding != _SHARED:
                        plain[name] += head[_UNCOMPRESSED] + values * _OFFSET
                    elif column.max_repetition_level:  # a row may have any number of them
                        plain[name] += values * (text + _OFFSET)
                    else:
                        repeated[name] += values * (text + _OFFSET)
                        longest = max(longest, text)
                yield sum(plain.values())
        if sum([*plain.values(), *repeated.values()]) <= budget.allow(len(content)):
            return
        unpacked = sum(size for name, size in plain.items() if name not in repeated)
        for batch in file.iter_batches(max(1, min(ROWS, budget.FREE // longest)), columns=sorted(repeated)):
            unpacked += sum(map(_measure, batch.columns))
            yield unpacked


def _describe_page(head: Mapping[int, Any]) -> tuple[int, int]:
    """Return how many values a page has, and their encoding."""
    values, encoding = (head[_DATA][1], head[_DATA][2]) if _DATA in head else (head[_DATA_2][1], head[_DATA_2][4])
    if values < 0:
        raise ValueError("a page has less than no values")
    return values, encoding


def _list_pages(content: mmap.mmap, column: Any) -> Iterator[Mapping[int, Any]]:
    """Yield the heads of those pages of a column that Arrow reads."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    reader, left = _Thrift(content, start), column.num_values
    while left > 0 and reader.at < min(start + column.total_compressed_size + _PADDING, len(content)):
        head = reader.read_struct()
        if min(head[_UNCOMPRESSED], head[_COMPRESSED]) < 0:
            raise ValueError("a page has less than no bytes")
        if head.keys() & {_DATA, _DICTIONARY, _DATA_2}:
            yield head
        left -= 0 if _DICTIONARY in head or not head.keys() & {_DATA, _DATA_2} else _describe_page(head)[0]
        reader.at += head[_COMPRESSED]


class _Thrift:
    """Reads what heads of pages have of Thrift's compact protocol."""

    def __init__(self, content: mmap.mmap, at: int) -> None:
        self._content = content
        self.at = at

    def read_struct(self) -> dict[int, Any]:
        fields, number = {}, 0
        while head := self._read_byte():
            number = number + (head >> 4) if head >> 4 else self._read_number()
            fields[number] = self._read(head & 15)
        return fields

    def _read(self, kind: int) -> Any:
        if kind in {1, 2}:
            return kind == 1
        if kind in {4, 5, 6}:
            return self._read_number()
        if kind == 12:
            return self.read_struct()
        if kind not in {3, 7, 8}:
            raise ValueError(f"the head of a page has a field of the kind {kind}")
        length = {3: 1, 7: 8}.get(kind) or self._read_length()
        self.at += length
        return None

    def _read_byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _read_length(self) -> int:
        value = shift = 0
        while (byte := self._read_byte()) & 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _read_number(self) -> int:
        value = self._read_length()
        return value >> 1 ^ -(value & 1)


def _measure_arrow(path: Path) -> Iterator[int]:
    """Yield what a file unpacks to: first as its packed parts say, then with texts that it names again and again.

    Raises a pyarrow.ArrowInvalid if a text would lie outside of the file, which Arrow does not look at when it reads.
    """
    import pyarrow as pa

    unpacked = 0
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for length in _list_packed(content):
            unpacked += length
            yield unpacked
        of_file = content[: len(_MAGIC)] == _MAGIC
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source) if of_file else pa.ipc.open_stream(source)
        size = 0
        for batch in map(reader.get_batch, range(reader.num_record_batches)) if of_file else reader:
            batch.validate(full=True)
            size += max(batch.num_rows, sum(map(_measure, batch.columns)))
            yield size


def _measure(array: Any) -> int:
    """Return the bytes of an array in which each value stands by itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, parts, once = array.type, list[Any](), len(array)
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = array.flatten() if pa.types.is_struct(kind) else [array.flatten()]
    elif pa.types.is_fixed_size_list(kind):
        parts = [array.flatten()]
    elif pa.types.is_dictionary(kind):
        rows, values = array.indices.drop_null(), array.dictionary
        if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
            once += pc.sum(pc.take(pc.binary_length(values), rows)).as_py() or 0
        else:
            once += len(rows) * _measure(values)
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        heads = np.frombuffer(array.buffers()[1], np.int32)  # of 16 bytes each, which begin with the length
        once += heads[4 * array.offset : 4 * (array.offset + len(array)) : 4].sum(dtype=np.int64)
    else:
        once = max(once, array.nbytes)
    return int(once + sum(map(_measure, parts)))


_MAGIC: Final = b"ARROW1"
# Slots and numbers of https://github.com/apache/arrow/tree/main/format
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def _list_packed(content: mmap.mmap) -> Iterator[int]:
    """Yield how long each packed part of a file says that it is."""
    from flatbuffers.table import Table  # type: ignore[import-untyped]

    def open_table(table: Any, slot: int) -> Any:
        return Table(table.Bytes, table.Indirect(table.Pos + table.Offset(slot)))

    for head, body in _list_messages(content):
        message = Table(head, int.from_bytes(head[:4], "little"))
        kind = head[message.Pos + message.Offset(6)] if message.Offset(6) else 0
        if kind not in {_DICTIONARY_BATCH, _RECORD_BATCH}:
            continue
        batch = open_table(message, 8)
        batch = open_table(batch, 6) if kind == _DICTIONARY_BATCH else batch
        if not batch.Offset(10):  # nothing is packed
            continue
        for number in range(batch.VectorLen(batch.Offset(8))):
            at, length = struct.unpack_from("<qq", head, batch.Vector(batch.Offset(8)) + 16 * number)
            if length:
                yield max(0, *struct.unpack_from("<q", content, body + at))  # -1: this part is not packed


def _list_messages(content: mmap.mmap) -> Iterator[tuple[bytes, int]]:
    """Yield the head of each message of a file or a stream of Arrow, and where its body begins."""
    from flatbuffers.table import Table

    if content[: len(_MAGIC)] != _MAGIC:
        at = 0
        while (found := _read_head(content, at)) and found[0]:
            head, body = found
            yield head, body
            message = Table(head, int.from_bytes(head[:4], "little"))
            at = body + (
                struct.unpack_from("<q", head, message.Pos + message.Offset(10))[0] if message.Offset(10) else 0
            )
        return
    end = len(content) - len(_MAGIC) - 4
    (size,) = struct.unpack_from("<i", content, end)
    foot = content[end - size : end]
    footer = Table(foot, int.from_bytes(foot[:4], "little"))
    for slot in (8, 10):
        for number in range(footer.VectorLen(footer.Offset(slot)) if footer.Offset(slot) else 0):
            at, size = struct.unpack_from("<qi", foot, footer.Vector(footer.Offset(slot)) + 24 * number)
            head, _ = _read_head(content, at)
            yield head, at + size


def _read_head(content: mmap.mmap, at: int) -> tuple[bytes, int]:
    """Return the head at a place, which is empty at the end of a stream, and where its body begins."""
    if at + 4 > len(content):
        return b"", at
    (size,) = struct.unpack_from("<i", content, at)
    at += 4
    if size == -1:
        (size,) = struct.unpack_from("<i", content, at)
        at += 4
    if size < 0:
        raise ValueError("a head has less than no bytes")
    return content[at : at + size], at + size
