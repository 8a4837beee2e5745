"""Small files that unpack to much. What reads them may have little memory."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.makers.tables import make_table, open_, write
from tools.layers import ROOT
from train.config import origin
from train.data import tables
from train.data.layout import Place
from train.errors import DataError

MEGABYTE = b"\0" * 1_000_000
LIMIT = 1 << 29


def _repeat(value: bytes, count: int, **options: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table({"image": [value] * count}), path, compression="zstd", **options)


def _write_number(value: int) -> bytes:
    """Return a number as Thrift's compact protocol has it."""
    value, written = value << 1, b""
    while value > 127:
        value, written = value >> 7, written + bytes([value & 127 | 128])
    return written + bytes([value])


def _lie(path: Path) -> None:
    """Say in the footer that 150 MB are 1,000 bytes."""
    _repeat(MEGABYTE * 150, 1, use_dictionary=False)(path)
    said = _write_number(pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size)
    low = bytes(byte | 128 for byte in _write_number(1000))
    path.write_bytes(path.read_bytes().replace(said, low + b"\x80" * (len(said) - len(low) - 1) + b"\0"))
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size == 1000


def _list_one(path: Path) -> None:
    pq.write_table(pa.table({"image": [[MEGABYTE] * 300]}), path, compression="zstd", dictionary_pagesize_limit=1 << 30)


def _fix(path: Path) -> None:
    pq.write_table(pa.table({"image": pa.array([b"\0" * 10_000] * 15_000, pa.binary(10_000))}), path)


def _in_arrow(array: Any, *, stream: bool = False, packed: str | None = None) -> Callable[[Path], None]:
    def write_file(path: Path) -> None:
        table, options = pa.table({"image": array}), pa.ipc.IpcWriteOptions(compression=packed)
        make = pa.ipc.new_stream if stream else pa.ipc.new_file
        with make(str(path), table.schema, options=options) as file:
            file.write_table(table)

    return write_file


def _view_often() -> Any:
    _, view, text = pa.array([MEGABYTE], pa.binary_view()).buffers()
    return pa.Array.from_buffers(pa.binary_view(), 6000, [None, pa.py_buffer(view.to_pybytes()[:16] * 6000), text])


BOMBS: dict[str, Callable[[Path], None]] = {
    "one text for all rows.parquet": _repeat(MEGABYTE, 300, dictionary_pagesize_limit=1 << 30),
    "one text for all places of a row.parquet": _list_one,
    "a long text.parquet": _repeat(MEGABYTE * 150, 1, use_dictionary=False),
    "a footer that lies.parquet": _lie,
    "texts that share a start.parquet": _repeat(
        MEGABYTE, 300, use_dictionary=False, column_encoding={"image": "DELTA_BYTE_ARRAY"}
    ),
    "texts of one length.parquet": _fix,
    "packed.arrow": _in_arrow([MEGABYTE * 150], packed="zstd"),
    "a packed stream.arrow": _in_arrow([MEGABYTE * 250], packed="lz4", stream=True),
    "packed words.arrow": _in_arrow(pa.DictionaryArray.from_arrays([0], [MEGABYTE * 150]), packed="zstd"),
    "one word for all rows.arrow": _in_arrow(pa.DictionaryArray.from_arrays([0] * 6000, [MEGABYTE])),
    "one view for all rows.arrow": _in_arrow(_view_often(), stream=True),
    "rows of nothing.arrow": _in_arrow(pa.nulls(200_000_000)),
}


CHECK = """
import sys
from pathlib import Path
from train.data import unpacking
from train.errors import DataError
for path in map(Path, sys.argv[1:]):
    try:
        unpacking.check(path, path.suffix[1:])
    except DataError as error:
        print(path.name, ":", error.what)
"""


def test_what_unpacks_to_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for name, make in BOMBS.items():
        make(tmp_path / name)
        assert (tmp_path / name).stat().st_size < 2_100_000
    done = subprocess.run(
        [sys.executable, "-c", CHECK, *(tmp_path / name for name in BOMBS)],
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        env={"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
    )
    said = [line for line in done.stdout.splitlines() if "unpacks to more than 100 times its size" in line]
    assert [line.partition(" : ")[0] for line in said] == [*BOMBS], done.stdout + done.stderr


def test_texts_of_other_memory_are_refused(tmp_path: Path) -> None:
    """Arrow reads them by any offset that a file names."""
    folder = write(tmp_path / "pets", "saved", train=make_table())
    (path,) = folder.glob("train/*.arrow")
    with pa.memory_map(str(path)) as source:
        ends = pa.ipc.open_stream(source).read_all()["picture"].chunk(0).field("bytes").buffers()[1].to_pybytes()
    content = path.read_bytes()
    assert content.count(ends) == 1
    path.write_bytes(content.replace(ends, ends[:-4] + (1 << 29).to_bytes(4, "little")))
    with pytest.raises(DataError, match="cannot read"):
        open_(folder)


@pytest.mark.parametrize("where", ["{}/train/{}", "../../other/train/{}", "link.arrow", "/dev/zero", "../train/{}"])
def test_files_of_save_to_disk_elsewhere_are_not_read(where: str, tmp_path: Path) -> None:
    write(tmp_path / "other", "saved", train=make_table())
    folder = write(tmp_path / "pets", "saved", train=make_table())
    (path,) = (tmp_path / "other").glob("train/*.arrow")
    state = json.loads((folder / "train/state.json").read_text())
    state["_data_files"] = [{"filename": where.format(path.name) if where[0] != "{" else str(path)}]
    (folder / "train/state.json").write_text(json.dumps(state))
    if where == "link.arrow":
        (folder / "train/link.arrow").symlink_to(path)
    with pytest.raises(DataError):
        open_(folder)


@pytest.mark.parametrize("split", ["../other/train", "/", "https://example.org/x", "zip://train::x"])
def test_splits_of_save_to_disk_elsewhere_are_not_read(split: str, tmp_path: Path) -> None:
    write(tmp_path / "other", "saved", train=make_table())
    folder = write(tmp_path / "pets", "saved", train=make_table())
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
    with pytest.raises(DataError, match="cannot read"):
        tables.open_folder(Place(folder, "pets"), tmp_path, "pets", {})
    assert origin.list_files(folder)
