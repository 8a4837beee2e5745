import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.makers.tables import open_
from tests.unit.train.own.making import make_image, write_classes, write_image
from train.cli import main
from train.errors import DataError

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99)


def write_loose(folder: Path) -> None:
    for number in range(3):
        write_image(folder / f"{number}.png")


def make_kaggle(root: Path) -> None:
    for name, count in (("train", 5), ("valid", 2), ("test", 3)):
        write_classes(root / name, ("jpegs", "pngs"), count)
    write_loose(root / "images to predict")


def make_preview(root: Path) -> None:
    write_classes(root / "Train")
    write_classes(root / "Test", count=3)
    write_image(root / "preview" / "0.png")
    write_image(root / "cover.png")


def make_unlabelled(root: Path) -> None:
    write_classes(root / "train")
    write_loose(root / "test")


def make_repeated(root: Path) -> None:
    for name in ("seg_train", "seg_test"):
        write_classes(root / name / name, count=3)
    write_loose(root / "seg_pred" / "seg_pred")


@pytest.mark.parametrize(
    ("make", "options", "counts", "beside"),
    [
        (make_kaggle, (), (10, 6, 4), "3 images in images to predict/"),
        (make_kaggle, ("--split", "train:valid"), (10, 4, None), "6 images in test/"),
        (make_preview, (), (10, 6, None), "1 image in preview/"),
        (make_preview, ("--split", "train:test"), (10, 6, None), "1 image in the folder itself"),
        (make_unlabelled, (), (8, 2, None), "3 images in test/"),
        (make_unlabelled, ("--split", "train"), (8, 2, None), "3 images in test/"),
        (make_repeated, ("--split", "seg_train:seg_test"), (6, 6, None), "3 images in seg_pred/"),
    ],
)
def test_splits_are_used_and_what_lies_beside_them_is_named(
    tmp_path: Path,
    make: Callable[[Path], None],
    options: tuple[str, ...],
    counts: tuple[int, int, int | None],
    beside: str,
) -> None:
    make(tmp_path / "set")
    dataset = open_(tmp_path / "set", *options)
    validation = len(dataset.validation) if dataset.validation else None
    assert (len(dataset.train), len(dataset.test), validation) == counts
    assert dataset.class_names in {("jpegs", "pngs"), ("cat", "dog")}
    assert beside in dataset.notes[0]
    with pytest.raises(DataError, match="strict-data") as caught:
        open_(tmp_path / "set", *options, "--strict-data")
    assert beside in caught.value.why


def test_a_layout_that_can_be_read_in_two_ways_is_refused_or_told(tmp_path: Path) -> None:
    write_classes(write_classes(tmp_path / "pets") / "test")
    with pytest.raises(DataError, match="pets/test holds folders of the same names"):
        open_(tmp_path / "pets")
    make_repeated(tmp_path / "land")
    (warning,) = open_(tmp_path / "land").warnings
    assert "seg_test, seg_train" in warning
    assert "--split" in warning


def test_files_that_are_left_out_are_counted_by_suffix_folder_and_content(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "pets")
    for name in ("cat/1.heic", "owl/1.HEIC", "owl/2.heic", "dog/notes.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(HEIC if "heic" in name.lower() else b"words")
    write_image(folder / "dog" / "0.png").rename(folder / "dog" / "photo")
    (folder / "empty").mkdir()
    (note,) = (note for note in open_(folder).notes if "left out" in note)
    for part in (
        "5 files",
        ".heic: 3",
        ".txt: 1",
        "no suffix: 1",
        "owl: 2",
        "HEIC: 3",
        "dog/photo (PNG)",
        "empty, owl",
    ):
        assert part in note
    assert main([str(folder), "--strict-data", "--cache-dir", str(tmp_path / "cache")]) == 9


def test_every_broken_image_is_reported_with_its_reason(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "pets")
    for number in range(3):
        (folder / "cat" / f"new\nline{number}.png").write_bytes(b"")
    (folder / "dog" / "text.png").write_bytes(b"words")
    report = tmp_path / "reports" / "broken.jsonl"
    with pytest.raises(DataError) as caught:
        open_(folder, "--report-broken", str(report))
    assert str(report) in caught.value.why
    lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
    assert [Path(line["image"]).name for line in lines] == [*(f"new\nline{n}.png" for n in range(3)), "text.png"]
    assert all(line["reason"] for line in lines)
    with pytest.raises(DataError, match="cannot read") as caught:
        open_(folder)
    assert "--report-broken" in caught.value.why


def test_a_table_is_taken_as_it_is(tmp_path: Path) -> None:
    import datasets

    rows = [{"bytes": write_image(tmp_path / f"{number}.png").read_bytes(), "path": None} for number in range(6)]
    table = datasets.Dataset.from_dict({"image": rows, "label": ["a", "b"] * 3})
    table.to_parquet(tmp_path / "train-00000-of-00002.parquet")
    table.save_to_disk(tmp_path / "saved")
    (arrow,) = (tmp_path / "saved").glob("*.arrow")
    # In a container the file has another name.
    for path in (tmp_path / "train-00000-of-00002.parquet", arrow, arrow.rename(tmp_path / "local")):
        if path.exists():
            assert open_(path).class_names == ("a", "b")


@pytest.fixture
def png(tmp_path: Path) -> bytes:
    return write_image(tmp_path / "any.png", make_image()).read_bytes()


def encrypt(content: bytes) -> bytes:
    """Set the bit of encryption of the only member."""
    place = content.index(b"PK\x01\x02") + 8
    return content[:place] + struct.pack("<H", 1) + content[place + 2 :]


@pytest.mark.parametrize(
    ("name", "change", "what"),
    [
        ("pets.zip", lambda content: content[: len(content) // 2], "zip archive, but is cut off or damaged"),
        ("pets.zip", encrypt, "password"),
        ("pets.zip", lambda _: b"", "empty file"),
        ("pets.txt", lambda _: b"cat, dog\n", "text"),
        ("pets.jpg", lambda _: b"\xff\xd8\xff\xe0", "one image (JPEG)"),
        ("pets.tar.gz", lambda _: b"\x1f\x8b\x08\0", "gzip file, but is cut off or damaged"),
        ("pets.parquet", lambda _: b"PAR1", "arquet"),
    ],
)
def test_a_file_that_is_no_data_set_is_named(
    tmp_path: Path, png: bytes, name: str, change: Callable[[bytes], bytes], what: str
) -> None:
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as zipped:
        zipped.writestr("a/0.png", png)
    (tmp_path / name).write_bytes(change((tmp_path / "whole.zip").read_bytes()))
    with pytest.raises(DataError) as caught:
        open_(tmp_path / name)
    assert what in caught.value.why
    assert caught.value.remedy
