"""Whatever happens to a local copy, the answer is data or one clear error; and reading it takes no needless memory."""

import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pytest

from tests.unit.train.test_data import make_split, write_idx, write_parquet
from tests.unit.train.test_hugging_face import make_saved
from train.data import Split, idx, matlab, parquet, saved, tables
from train.errors import DataError

TRIALS = 150
COUNT = 6


def write_matlab(path: Path, split: Split, *, compress: bool) -> None:
    from scipy.io import savemat

    content = {"X": split.images.transpose(1, 2, 3, 0), "y": split.labels[:, None].astype(np.float64)}
    savemat(path, content, do_compression=compress)


def make_layout(kind: str, folder: Path) -> Callable[[Path], Split]:
    """Write a local copy; returns what reads its training split."""
    split = make_split(COUNT)
    if kind == "parquet":
        write_parquet(folder, "train.parquet", split, "img", "label")
        return lambda place: parquet.read([place / "train.parquet"], "img", "label")
    if kind == "saved":
        datasets.DatasetDict({"train": make_saved(split)}).save_to_disk(folder)
        return lambda place: saved.read([place / "train"], "img", "label")
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
    """Cut a file short, or change or swap some of its bytes, near its beginning as often as anywhere."""
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
def test_a_damaged_copy_is_an_error_and_never_a_crash(tmp_path: Path, kind: str) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    read = make_layout(kind, good)
    assert len(read(good)) == COUNT
    numbers, refused = random.Random(0), 0  # noqa: S311
    for _ in range(TRIALS):
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        spoil(numbers.choice(sorted(path for path in bad.rglob("*") if path.is_file())), numbers)
        try:
            assert read(bad).images.dtype == np.uint8
        except DataError:
            refused += 1
    assert refused > TRIALS // 10


def test_a_table_that_lies_about_its_length(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = write_parquet(tmp_path, "train.parquet", make_split(4), "img", "label")
    table = pq.read_table(path)
    for rows in (3, 5):
        with pytest.raises(DataError):
            tables.read([path], lambda _, rows=rows: (rows, table.to_batches()), "img", "label")


@pytest.mark.parametrize("kind", ["parquet", "matlab"])
def test_reading_holds_the_images_once(tmp_path: Path, kind: str) -> None:
    """SVHN with its extra split has 604,388 images, 1.9 GB: a second copy of them would be missed elsewhere."""
    split = make_split(6000)
    if kind == "parquet":
        path = write_parquet(tmp_path, "train.parquet", split, "img", "label")
    else:
        path = tmp_path / "train_32x32.mat"
        write_matlab(path, split, compress=True)
    size = split.images.nbytes
    tracemalloc.start()
    found = parquet.read([path], "img", "label") if kind == "parquet" else matlab.read([path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found.images, split.images)
    # Above the images: what is decoded at a time, and how a growing buffer over-allocates.
    assert peak < 1.5 * size
