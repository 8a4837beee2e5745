import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.makers.tables import COUNT, make_table, open_, write
from tests.unit.train.own.making import write_classes, write_image
from train.command_line import parse
from train.data import archives
from train.errors import DataError


def write_paths(folder: Path, *paths: str) -> Path:
    """Write a table whose images are files: eight beside it, and some more."""
    names = [f"{number}.png" for number in range(8)]
    for name in names:
        write_image(folder / "files" / name)
    rows = [{"bytes": None, "path": path} for path in (*(f"files/{name}" for name in names), *paths)]
    features = datasets.Features(
        {"picture": datasets.Image(decode=False), "kind": datasets.ClassLabel(names=["cat", "dog"])}
    )
    table = datasets.Dataset.from_dict(
        {"picture": rows, "kind": [number % 2 for number in range(len(rows))]}, features=features
    )
    pq.write_table(table.data.table, folder / "train.parquet")
    return folder


def test_rows_of_a_table_name_files_in_the_folder_of_the_data_set(tmp_path: Path) -> None:
    dataset = open_(write_paths(tmp_path / "pets"))
    assert len(dataset.train) + len(dataset.test) == 8
    assert not any("left out" in note for note in dataset.notes)
    write_image(tmp_path / "pets" / "files" / "other.png")
    assert any("1 image beside" in note for note in open_(tmp_path / "pets").notes)


@pytest.mark.parametrize("path", ["{}/other.png", "../other.png", "files/../../other.png", "/dev/zero", "/etc/passwd"])
def test_a_row_that_names_a_file_outside_of_the_data_set_is_refused(tmp_path: Path, path: str) -> None:
    write_image(tmp_path / "other.png")
    folder = write_paths(tmp_path / "pets", path.format(tmp_path))
    with pytest.raises(DataError, match="row 8 of the train split") as caught:
        open_(folder)
    assert "leads out of the folder" in caught.value.why
    assert any(note.startswith("1 of 9") for note in open_(folder, "--skip-broken").notes)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "saved"])
def test_columns_are_found_by_their_types(tmp_path: Path, kind: str) -> None:
    train = make_table()
    dataset = open_(write(tmp_path / "my [pets]", kind, train=train, test=make_table(4)))
    assert dataset.class_names == ("cat", "dog")
    assert (len(dataset.train), len(dataset.test)) == (COUNT, 4)
    assert np.array_equal(dataset.train.images[3], np.asarray(train[3]["picture"]))
    assert dataset.train.labels.tolist() == [number % 2 for number in range(COUNT)]


@pytest.mark.parametrize("named", [("train", "validation", "test"), ("training", "dev", "eval")])
def test_splits_are_found_by_the_names_of_files(tmp_path: Path, named: tuple[str, ...]) -> None:
    tables = {name: make_table(count) for name, count in zip(named, (10, 6, 4), strict=True)}
    dataset = open_(write(tmp_path / "pets", "parquet", **tables))
    assert dataset.validation
    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [10, 6, 4]


@pytest.mark.parametrize(
    ("labels", "names"), [(["owl", "cat"] * 5, ("cat", "owl")), ([7, 3] * 5, ("3", "7")), ([True, False] * 5, None)]
)
def test_labels_of_other_kinds_get_numbers(tmp_path: Path, labels: list[Any], names: tuple[str, ...] | None) -> None:
    folder = write(tmp_path / "pets", "parquet", train=make_table(label=labels, name="label"))
    dataset = open_(folder)
    assert dataset.class_names == (names or ("False", "True"))
    assert set(dataset.train.labels) == {0, 1}


def test_columns_that_cannot_be_chosen_are_named(tmp_path: Path) -> None:
    table = make_table()
    two = table.add_column("breed", [number % 5 for number in range(COUNT)])
    two = two.cast_column("breed", datasets.ClassLabel(names=list("abcde")))
    folder = write(tmp_path / "pets", "parquet", train=two)
    with pytest.raises(DataError, match="2 columns that can be the label: kind, breed"):
        open_(folder)
    assert open_(folder, "--label-column", "breed").class_names == tuple("abcde")
    with pytest.raises(DataError, match="has no column size"):
        open_(folder, "--label-column", "size")
    nothing = write(tmp_path / "no", "parquet", train=table.remove_columns("kind"))
    with pytest.raises(DataError, match="no columns that can be the label") as caught:
        open_(nothing)
    assert "--label-column" in caught.value.remedy


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    make_table().to_parquet(tmp_path / "train-00000-of-00002.parquet")
    with pytest.raises(DataError, match="holds 1 of 2 files of train"):
        open_(tmp_path)


def pack(folder: Path, archive: Path) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for path in sorted(folder.rglob("*")):
                zipped.write(path, path.relative_to(folder.parent))
    else:
        with tarfile.open(archive, "w:gz" if archive.name.endswith("gz") else "w") as tar:
            tar.add(folder, folder.name)
    return archive


@pytest.mark.parametrize("end", ["zip", "tar", "tgz"])
def test_archives_are_unpacked_into_the_cache(tmp_path: Path, end: str) -> None:
    archive = pack(write_classes(tmp_path / "pets"), tmp_path / f"my pets.{end}")
    expected = open_(tmp_path / "pets")
    dataset = open_(archive)
    assert dataset.digest == expected.digest
    assert parse([str(archive)]).dataset == "my-pets"
    archives.open_place(archive, tmp_path / "cache", parse([str(archive)]).data_sha256)
    assert [path.name for path in (tmp_path / "cache" / "unpacked").iterdir()] == [
        parse([str(archive)]).data_sha256[:32]
    ]


def add(tar: tarfile.TarFile, name: str, content: bytes = b"x", **changes: Any) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for field, value in changes.items():
        setattr(member, field, value)
    tar.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "changes", "what"),
    [
        ("../out.png", {}, "a path that leads out of the folder"),
        ("/out.png", {}, "an absolute path"),
        ("cat/link.png", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}, "a link or a device"),
        ("cat/link.png", {"type": tarfile.LNKTYPE, "linkname": "../x", "size": 0}, "a link or a device"),
        ("cat/pipe", {"type": tarfile.FIFOTYPE, "size": 0}, "a link or a device"),
    ],
)
def test_archives_that_would_write_elsewhere(tmp_path: Path, name: str, changes: dict[str, Any], what: str) -> None:
    archive = tmp_path / "pets.tar"
    with tarfile.open(archive, "w") as tar:
        add(tar, "cat/good.png")
        add(tar, name, **changes)
    with pytest.raises(DataError, match=what):
        open_(archive)
    assert not (tmp_path / "cache" / "unpacked").exists()
    assert not (tmp_path / "out.png").exists()


def test_a_link_in_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pets.zip", "w") as zipped:
        link = zipfile.ZipInfo("cat/link.png")
        link.external_attr = 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="a link or a device"):
        open_(tmp_path / "pets.zip")


def test_a_data_set_can_ship_no_program(tmp_path: Path) -> None:
    folder = write(tmp_path / "pets", "parquet", train=make_table())
    (folder / "pets.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    (folder / "dataset_infos.json").write_text(json.dumps({}), encoding="utf-8")
    assert len(open_(folder).train) == 8
    assert not (tmp_path / "ran").exists()
