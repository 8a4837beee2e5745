import io
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tests.makers.data_files import make_split, write_idx, write_parquet
from tests.makers.hugging_face import make_saved
from tests.tiers import weekly
from train.command_line import parse
from train.data import Split, load, sources
from train.errors import DataError

TRIALS = (10, weekly(150))
COUNT = 6


def make_layout(kind: str, folder: Path) -> Callable[[Path], Split]:
    split = make_split(COUNT)
    if kind == "parquet":
        for name in ("train", "test"):
            write_parquet(folder, f"{name}.parquet", split, "img", "label")
    elif kind == "saved":
        saved = make_saved(split)
        datasets.DatasetDict({"train": saved, "test": saved}).save_to_disk(folder)
    if kind in {"parquet", "saved"}:
        cache = str(folder.parent / "cache")
        return lambda place: load(parse(["cifar10", "--data-dir", str(place), "--cache-dir", cache])).train
    compress = kind.endswith("compressed")
    end = ".gz" if compress else ""
    for name, array in (("images-idx3", split.images[..., 0]), ("labels-idx1", split.labels.astype(np.uint8))):
        for prefix in ("train", "t10k"):
            write_idx(folder / f"{prefix}-{name}-ubyte{end}", array, compress=compress)
    facts = sources.read_sources()["fashion_mnist"]
    return lambda place: sources.read_published(facts, place, {"train": ["train"]}, "fine")["train"]


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


@pytest.mark.parametrize("kind", ["parquet", "saved", "idx", "idx compressed"])
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
IMAGES = {
    "null": (None, "the image in row 300 of the train split of .* is missing"),
    "empty": ({"bytes": b"", "path": None}, "cannot read the image in row 300 of the train split"),
    "cut": ({"bytes": GOOD[:60], "path": None}, "cannot read the image in row 300 of the train split"),
    "smaller": (encode("RGB", 16), "cannot use row 300 of the train split"),
    "gray": (encode("L"), "cannot use row 300 of the train split"),
}


def write_rows(folder: Path, rows: list[Any], labels: list[Any]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"img": pa.array(rows, kind), "label": pa.array(labels)})
    for name in ("train", "test"):
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def read(folder: Path) -> Split:
    return load(parse(["cifar10", "--data-dir", str(folder), "--cache-dir", str(folder / "cache")])).train


@pytest.mark.parametrize("kind", IMAGES)
def test_an_image_that_is_missing_or_broken_is_named_by_its_row(tmp_path: Path, kind: str) -> None:
    row, what = IMAGES[kind]
    rows: list[Any] = [encode("RGB")] * 303
    rows[300] = row
    with pytest.raises(DataError, match=what):
        read(write_rows(tmp_path, rows, [0] * len(rows)))


def test_a_label_that_is_missing_is_named_by_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"row 2 of the split train of {tmp_path} has no label"):
        read(write_rows(tmp_path, [encode("RGB")] * 4, [1, 2, None, 3]))


@pytest.mark.parametrize("labels", [[1.0, 2.5], [True, False]])
def test_labels_that_are_no_whole_numbers_are_refused(tmp_path: Path, labels: list[Any]) -> None:
    with pytest.raises(DataError, match="cannot read") as caught:
        read(write_rows(tmp_path, [encode("RGB")] * 2, labels))
    assert "not whole numbers" in caught.value.why


@pytest.mark.parametrize("label", [-1, 2**32 + 3])
def test_a_label_out_of_range_is_named_by_its_place(tmp_path: Path, label: int) -> None:
    with pytest.raises(DataError, match="training labels run from") as caught:
        read(write_rows(tmp_path, [encode("RGB")] * 4, [1, 2, label, 3]))
    assert "1 of 4 are wrong" in caught.value.why
    assert "of image 2, counted from 0" in caught.value.why
