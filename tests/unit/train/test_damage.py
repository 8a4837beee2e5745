import io
import random
import re
import shutil
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tests.tiers import slow
from tests.unit.train.test_data import make_split, write_idx, write_parquet
from tests.unit.train.test_hugging_face import make_saved
from train.cli import parse
from train.data import Split, idx, load, matlab, tables
from train.errors import DataError

TRIALS = (10, slow(150))
COUNT = 6


def write_matlab(path: Path, split: Split, *, compress: bool) -> None:
    from scipy.io import savemat

    content = {"X": split.images.transpose(1, 2, 3, 0), "y": split.labels[:, None].astype(np.float64)}
    savemat(path, content, do_compression=compress)


def make_layout(kind: str, folder: Path) -> Callable[[Path], Split]:
    split = make_split(COUNT)
    if kind == "parquet":
        write_parquet(folder, "train.parquet", split, "img", "label")
        return lambda place: tables.read_parquet([place / "train.parquet"], "img", "label")
    if kind == "saved":
        datasets.DatasetDict({"train": make_saved(split)}).save_to_disk(folder)
        return lambda place: tables.read_saved([place / "train"], "img", "label")
    if kind.startswith("matlab"):
        write_matlab(folder / "train_32x32.mat", split, compress=kind.endswith("compressed"))
        return lambda place: matlab.read([place / "train_32x32.mat"])
    compress = kind.endswith("compressed")
    end = ".gz" if compress else ""
    for name, array in (("images-idx3", split.images[..., 0]), ("labels-idx1", split.labels.astype(np.uint8))):
        for prefix in ("train", "t10k"):
            write_idx(folder / f"{prefix}-{name}-ubyte{end}", array, compress=compress)
    return lambda place: idx.read_folder(place)[0]


def spoil(path: Path, numbers: random.Random) -> None:
    content = bytearray(path.read_bytes())
    reach = len(content) if numbers.random() < 0.5 else min(len(content), 300)
    if numbers.random() < 0.3:
        del content[numbers.randrange(reach) :]
    else:
        for _ in range(numbers.choice([1, 3])):
            one, other = numbers.randrange(reach), numbers.randrange(reach)
            content[one], content[other] = content[other], numbers.randrange(256)
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["parquet", "saved", "matlab", "matlab compressed", "idx", "idx compressed"])
@pytest.mark.parametrize("trials", TRIALS)
def test_a_damaged_copy_is_an_error_and_never_a_crash(tmp_path: Path, kind: str, trials: int) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    read = make_layout(kind, good)
    assert len(read(good)) == COUNT
    numbers, refused = random.Random(0), 0  # noqa: S311
    for _ in range(trials):
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        spoil(numbers.choice(sorted(path for path in bad.rglob("*") if path.is_file())), numbers)
        try:
            assert read(bad).images.dtype == np.uint8
        except DataError:
            refused += 1
    assert refused > trials // 10


def encode(mode: str, size: int = 32) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new(mode, (size, size)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


GOOD = encode("RGB")["bytes"]
BOMB = GOOD[:16] + struct.pack(">II", 60_000, 60_000) + GOOD[24:29] + struct.pack(
    ">I", zlib.crc32(GOOD[12:16] + struct.pack(">II", 60_000, 60_000) + GOOD[24:29])
) + GOOD[33:]  # fmt: skip
IMAGES = {
    "null": (None, "the image is missing"),
    "no bytes": ({"bytes": None, "path": "a.png"}, "the image has no bytes"),
    "empty": ({"bytes": b"", "path": None}, "the image has no bytes"),
    "noise": ({"bytes": b"no image at all", "path": None}, "these 15 bytes are no image"),
    "cut": ({"bytes": GOOD[:60], "path": None}, "the image is broken"),
    "bomb": ({"bytes": BOMB, "path": None}, "the image is broken: .* decompression bomb"),
    "palette": (encode("P"), "the image has mode P, not L or RGB"),
    "16 bits": (encode("I;16"), "the image has mode I;16"),
    "one bit": (encode("1"), "the image has mode 1,"),
    "transparent": (encode("RGBA"), "the image has mode RGBA"),
    "smaller": (encode("RGB", 16), r"the image has shape \(16, 16, 3\), those before it \(32, 32, 3\)"),
}


def write_rows(path: Path, rows: list[Any], labels: list[Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"img": pa.array(rows, kind), "label": pa.array(labels)}), path)


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_that_is_missing_or_broken_is_named_by_file_and_row(tmp_path: Path, kind: str) -> None:
    row, what = IMAGES[kind]
    place = tables.ROWS + 7
    rows: list[Any] = [encode("RGB")] * (place + 3)
    write_rows(tmp_path / "one.parquet", rows[:5], [0] * 5)
    rows[place] = row
    write_rows(tmp_path / "two.parquet", rows, [0] * len(rows))
    with pytest.raises(DataError, match=f"row {place} of {tmp_path}/two.parquet") as caught:
        tables.read_parquet([tmp_path / "one.parquet", tmp_path / "two.parquet"], "img", "label")
    assert re.match(what, caught.value.why)


def test_a_column_without_images_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"img": ["a.png"], "label": [0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=f"row 0 of {tmp_path}/a.parquet") as caught:
        tables.read_parquet([tmp_path / "a.parquet"], "img", "label")
    assert caught.value.why == "the column holds str, not images with their bytes"


def test_a_label_that_is_missing_is_named_by_file_and_row(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.parquet", [encode("RGB")] * 4, [1, 2, None, 3])
    with pytest.raises(DataError, match=f"row 2 of {tmp_path}/a.parquet") as caught:
        tables.read_parquet([tmp_path / "a.parquet"], "img", "label")
    assert caught.value.why == "the label is missing"


@pytest.mark.parametrize("labels", [["1", "2"], [1.0, 2.5], [True, False]])
def test_labels_that_are_no_whole_numbers_are_refused(tmp_path: Path, labels: list[Any]) -> None:
    write_rows(tmp_path / "a.parquet", [encode("RGB")] * 2, labels)
    with pytest.raises(DataError, match="cannot read") as caught:
        tables.read_parquet([tmp_path / "a.parquet"], "img", "label")
    assert "not whole numbers" in caught.value.why


@pytest.mark.parametrize("label", [-1, 10, 2**32, 2**32 + 3, -(2**40)])
def test_a_label_out_of_range_is_named_by_its_place(tmp_path: Path, label: int) -> None:
    for name, labels in (("train", [1, 2, label, 3]), ("test", [1, 2, 3, 4])):
        write_rows(tmp_path / f"{name}.parquet", [encode("RGB")] * 4, labels)
    with pytest.raises(DataError, match="training labels run from") as caught:
        load(parse(["cifar10", "--data-dir", str(tmp_path)]))
    assert "1 of 4 are wrong" in caught.value.why
    assert "of image 2, counted from 0" in caught.value.why


@pytest.mark.parametrize("label", [11.0, 2.5, -1.0, float("nan")])
def test_a_label_of_svhn_that_is_no_digit_is_named(tmp_path: Path, label: float) -> None:
    from scipy.io import savemat

    labels = np.array([1.0, 10.0, label])[:, None]
    savemat(tmp_path / "train_32x32.mat", {"X": make_split(3).images.transpose(1, 2, 3, 0), "y": labels})
    with pytest.raises(DataError, match=f"cannot read {tmp_path}/train_32x32.mat") as caught:
        matlab.read([tmp_path / "train_32x32.mat"])
    assert f"label {label} of image 2, counted from 0" in caught.value.why


def test_a_table_that_lies_about_its_length(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = write_parquet(tmp_path, "train.parquet", make_split(4), "img", "label")
    table = pq.read_table(path)
    for rows in (3, 5):
        with pytest.raises(DataError):
            tables._read([path], lambda _, rows=rows: (rows, table.to_batches()), "img", "label")


@pytest.mark.parametrize("kind", ["parquet", "matlab"])
def test_reading_holds_the_images_once(tmp_path: Path, kind: str) -> None:
    """SVHN with its extra split has 604,388 images, 1.9 GB: a second copy would take too much memory."""
    split = make_split(6000)
    if kind == "parquet":
        path = write_parquet(tmp_path, "train.parquet", split, "img", "label")
    else:
        path = tmp_path / "train_32x32.mat"
        write_matlab(path, split, compress=True)
    size = split.images.nbytes
    tracemalloc.start()
    found = tables.read_parquet([path], "img", "label") if kind == "parquet" else matlab.read([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found.images, split.images)
    # Besides the images: the part being decoded, and spare room of a growing buffer.
    assert peak < 1.5 * size
