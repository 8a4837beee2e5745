import hashlib
import io
import json
import pickle
import tarfile
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.model_selection import train_test_split

from tests.makers.data_files import assert_same, make_split, write_idx, write_parquet
from train.cli import main
from train.command_line import parse
from train.config.presets import read_table
from train.data import Dataset, Split, describe_oddities, load, sources
from train.data.dataset import check
from train.data.tables import explain
from train.errors import DataError, IntegrityError
from train.run import job
from train.system import download


def make_batch(split: Split, keys: tuple[bytes, ...]) -> bytes:
    pixels = split.images.transpose(0, 3, 1, 2).reshape(len(split), -1)
    return pickle.dumps({b"data": pixels, **{key: split.labels.tolist() for key in keys}}, protocol=2)


def write_cifar10(folder: Path, train: Split, test: Split) -> None:
    folder.mkdir(parents=True)
    for number in range(5):
        part = train.take(np.arange(number, len(train), 5))
        (folder / f"data_batch_{number + 1}").write_bytes(make_batch(part, (b"labels",)))
    (folder / "test_batch").write_bytes(make_batch(test, (b"labels",)))


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    copy: dict[str, Any] = deepcopy(sources.read_sources())
    monkeypatch.setattr(sources, "read_sources", lambda: copy)
    return copy


def test_each_data_set_that_no_package_contains_has_a_source() -> None:
    known = {name for name, facts in read_table("datasets").items() if not facts.get("embedded")}
    assert known == sources.read_sources().keys()


def promise(table: dict[str, Any], dataset: str, folder: Path, algorithm: str = "md5") -> None:
    """State the digests of made files as the published ones."""
    for files in table[dataset]["published"]["splits"].values():
        files.update({name: hashlib.new(algorithm, (folder / name).read_bytes()).hexdigest() for name in files})


def test_the_split_of_the_digits_is_that_of_scikit_learn() -> None:
    images, labels = datasets.load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    parts = train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)
    found = sources.load_digits()
    assert_same(found.train, Split(*parts[::2]))
    assert_same(found.test, Split(*parts[1::2]))


def test_unpacked_batches_of_cifar10(tmp_path: Path, table: dict[str, Any]) -> None:
    train, test = make_split(20), make_split(4)
    # Keras nests the folder twice.
    folder = tmp_path / "cifar-10-batches-py-target" / "cifar-10-batches-py"
    write_cifar10(folder, train, test)
    promise(table, "cifar10", folder)
    dataset = load(parse(["cifar10", "--data-dir", str(tmp_path)]))
    order = np.concatenate([np.arange(number, 20, 5) for number in range(5)])
    assert_same(dataset.train, train.take(order))
    assert_same(dataset.test, test)


def test_an_unpacked_batch_that_was_not_published_is_never_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-py", make_split(10), make_split(4))

    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setitem(sources.READERS, "pickle", refuse)
    with pytest.raises(IntegrityError, match="data_batch_1 is not the file we know"):
        load(parse(["cifar10", "--data-dir", str(tmp_path)]))


@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_the_archive_of_cifar100(tmp_path: Path, labels: str, table: dict[str, Any]) -> None:
    train, test = make_split(20, classes=20), make_split(4, classes=20)
    archive = tmp_path / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, split in (("train", train), ("test", test)):
            content = make_batch(split, (b"fine_labels", b"coarse_labels"))
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    config = parse(["cifar100", "--labels", labels, "--data-dir", str(tmp_path)])
    with pytest.raises(IntegrityError, match="is not the file we know"):
        load(config)
    table["cifar100"]["files"][archive.name]["sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    dataset = load(config)
    assert_same(dataset.train, train)
    assert_same(dataset.test, test)


def test_parquet_files_of_the_hub(tmp_path: Path) -> None:
    train, test = make_split(10), make_split(4)
    write_parquet(tmp_path / "data", "train-00000-of-00002.parquet", train.take(np.arange(6)), "img", "label")
    write_parquet(tmp_path / "data", "train-00001-of-00002.parquet", train.take(np.arange(6, 10)), "img", "label")
    write_parquet(tmp_path / "data", "test-00000-of-00001.parquet", test, "img", "label")
    dataset = load(parse(["cifar10", "--data-dir", str(tmp_path)]))
    assert_same(dataset.train, train)
    assert_same(dataset.test, test)
    assert dataset.class_names[0] == "airplane"


@pytest.mark.parametrize(("compress", "place"), [(True, "fashion-mnist"), (False, "FashionMNIST/raw")])
def test_idx_files_of_fashion_mnist(tmp_path: Path, compress: bool, place: str) -> None:
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    splits = {"train": make_split(10, 28, 1), "t10k": make_split(4, 28, 1)}
    for name, split in splits.items():
        end = ".gz" if compress else ""
        write_idx(tmp_path / place / f"{name}-images-idx3-ubyte{end}", split.images[..., 0], compress=compress)
        write_idx(tmp_path / place / f"{name}-labels-idx1-ubyte{end}", split.labels.astype(np.uint8), compress=compress)
    dataset = load(parse(["fashion_mnist", "--data-dir", str(tmp_path)]))
    assert_same(dataset.train, splits["train"])
    assert_same(dataset.test, splits["t10k"])


@pytest.mark.parametrize(("kind", "compress"), [(np.uint8, True), (np.float64, False)])
def test_matlab_files_of_svhn(tmp_path: Path, kind: Any, compress: bool, table: dict[str, Any]) -> None:
    from scipy.io import savemat

    splits = {name: make_split(count) for name, count in (("train", 10), ("test", 4), ("extra", 6))}
    for name, split in splits.items():
        labels = np.where(split.labels == 0, 10, split.labels)[:, None].astype(kind)
        content = {"X": split.images.transpose(1, 2, 3, 0), "y": labels}
        path = tmp_path / f"{name}_32x32.mat"
        savemat(path, content, do_compression=compress)
    promise(table, "svhn", tmp_path, "sha256")
    dataset = load(parse(["svhn", "--no-extra", "--data-dir", str(tmp_path)]))
    assert_same(dataset.train, splits["train"])
    assert_same(dataset.test, splits["test"])
    more = load(parse(["svhn", "--extra", "--data-dir", str(tmp_path)]))
    assert_same(more.train.take(np.arange(10, 16)), splits["extra"])


def test_a_matlab_file_that_was_not_published_is_never_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.io

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(scipy.io, "loadmat", refuse)
    for name in ("train", "test"):
        (tmp_path / f"{name}_32x32.mat").write_bytes(b"anything")
    with pytest.raises(IntegrityError, match=r"train_32x32\.mat is not the file we know"):
        load(parse(["svhn", "--data-dir", str(tmp_path)]))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("evil"),))


def test_a_pickle_that_is_a_program_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    train, test = make_split(10), make_split(4)
    write_cifar10(tmp_path / "cifar-10-batches-py", train, test)
    victim = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    victim.write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    promise(table, "cifar10", victim.parent)
    with pytest.raises(DataError, match="cannot read") as caught:
        load(parse(["cifar10", "--data-dir", str(tmp_path)]))
    assert "which no data set needs" in caught.value.why
    assert not Path("evil").exists()


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_of_pickles_crash(content: bytes) -> None:
    with pytest.raises(DataError), explain("noise"):
        sources.read_pickle(content, "labels")


@given(st.binary(max_size=60))
def test_no_bytes_make_the_reader_of_idx_crash(content: bytes) -> None:
    header = bytes([0, 0, 8, 1])
    for candidate in (content, header + content):
        try:
            with explain("noise"):
                images, labels = sources.read_idx(candidate, "")
        except DataError:
            continue
        (array,) = [each for each in (images, labels) if each is not None]
        assert array.size == len(candidate) - 4 - 4 * candidate[3]


def test_a_folder_without_data_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(parse(["svhn", "--no-extra", "--data-dir", str(tmp_path)]))
    assert "train_32x32.mat" in caught.value.why
    assert "train-*.parquet" in caught.value.why


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda split: Split(split.images[:0], split.labels[:0]), "empty"),
        (lambda split: Split(split.images, split.labels[:-1]), "labels"),
        (lambda split: Split(split.images[:, :4], split.labels), r"not \(8, 8, 1\)"),
        (lambda split: Split(split.images, split.labels + 1), "labels run from 1 to 10"),
    ],
)
def test_data_of_another_kind_is_refused(change: Any, message: str) -> None:
    good = Split(np.zeros((10, 8, 8, 1), np.uint8), np.arange(10, dtype=np.int32))
    assert check(Dataset(good, good, (), "x"), (8, 8, 1), 10)
    with pytest.raises(DataError, match=message):
        check(Dataset(good, change(good), (), "x"), (8, 8, 1), 10)


def test_held_out_examples_are_taken_from_training() -> None:
    whole = sources.load_digits()
    part = load(parse(["digits", "--validation", "100"]))
    assert part.validation
    assert part.watched is part.validation
    assert whole.watched is whole.test
    assert (len(part.train), len(part.validation), len(part.test)) == (1337, 100, 360)
    joined = np.concatenate([part.train.images, part.validation.images]).reshape(1437, -1)
    assert np.array_equal(np.sort(joined, axis=0), np.sort(whole.train.images.reshape(1437, -1), axis=0))
    with pytest.raises(DataError, match="cannot hold out"):
        load(parse(["digits", "--validation", "1437"]))


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_an_altered_file_in_the_cache_is_noticed(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"good")
    digest = hashlib.new(algorithm, b"good", usedforsecurity=False).hexdigest()
    assert download.fetch("http://nowhere.invalid/", digest, path) == path
    path.write_bytes(b"bad")
    with pytest.raises(IntegrityError, match="is not the file we know"):
        download.fetch("http://nowhere.invalid/", digest, path)


def make_dataset(**changes: Any) -> Dataset:
    names = tuple("abcdefghij")
    return replace(Dataset(make_split(300), make_split(40), names, "here"), **changes)


def test_images_that_are_all_the_same_give_a_warning() -> None:
    sound = make_split(3000)
    black = Split(np.zeros_like(sound.images), sound.labels)
    same = Split(np.repeat(sound.images[:1], 3000, axis=0), sound.labels)
    nearly = Split(black.images.copy(), sound.labels)
    nearly.images[-1, 5, 5, :] = 1
    no_red = Split(sound.images.copy(), sound.labels)
    no_red.images[..., 0] = 7
    assert describe_oddities(make_dataset(train=black)) == [
        "all 3000 training images of here are the same: every pixel is 0"
    ]
    assert describe_oddities(make_dataset(train=same)) == ["all 3000 training images of here are the same"]
    assert describe_oddities(make_dataset(train=nearly)) == []
    assert describe_oddities(make_dataset(test=black)) == [
        "all 3000 test images of here are the same: every pixel is 0"
    ]
    assert describe_oddities(make_dataset(train=no_red)) == [
        "channel 0 of all training images of here is 7 in every pixel"
    ]


def test_classes_without_examples_give_a_warning() -> None:
    split = make_split(300)
    one = Split(split.images, np.full(300, 3, np.int32))
    few = Split(split.images, np.minimum(split.labels, 2))
    assert describe_oddities(make_dataset(train=one)) == ["all 300 training images of here are of one class, 3 (d)"]
    assert describe_oddities(make_dataset(test=one)) == ["all 300 test images of here are of one class, 3 (d)"]
    assert describe_oddities(make_dataset(train=few)) == [
        "7 of 10 classes have no training image in here: 3 (d), 4 (e), 5 (f), 6 (g), 7 (h), …"
    ]


def test_a_run_warns_even_when_it_is_quiet_and_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    split = make_split(70, size=8, channels=1)
    black = Dataset(Split(np.zeros_like(split.images), split.labels), split, tuple("0123456789"), "here")
    monkeypatch.setattr(job, "load", lambda _: black)
    arguments = ["digits", "--depth", "10", "--steps", "1", "--progress", "quiet", "--out", str(tmp_path)]
    assert main(arguments) == 0
    warning = "all 70 training images of here are the same: every pixel is 0"
    assert capsys.readouterr().err == f"warning: {warning}\n"
    manifest = json.loads((parse(arguments).run_dir / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["data"]["warnings"] == [warning]
    assert (manifest["data"]["source"], manifest["data"]["sha256"]) == ("here", black.digest)
