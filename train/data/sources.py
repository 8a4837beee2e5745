from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from train.config import TrainConfig, name_classes, read_table
from train.data import cifar, download, idx, matlab, own, rows
from train.data.dataset import Dataset, Split, check
from train.data.pictures import Pictures
from train.errors import DataError, UsageError
from train.options import settle

Splits = tuple[Split, Split]


def read_sources() -> dict[str, Any]:
    return read_table("data/sources")


def load(config: TrainConfig) -> Dataset:
    """Load the data of a run: from ``--data-dir``, else from the cache, else from its source.

    Raises a DataError if it is missing or unreadable, an IntegrityError if the digest of a file is wrong.
    """
    if config.own:
        dataset = own.load(config)
        config = settle(config, dataset.train.images.shape[1:], dataset.class_names)
    elif config.dataset == "digits":
        if config.data_dir:
            raise UsageError("--data-dir has no meaning for digits", why="they come with scikit-learn")
        dataset = load_digits()
    else:
        dataset = _load_files(config)
    dataset = replace(check(dataset, config.shape, config.classes), divided=config.normalize == "range")
    return dataset.hold_out(config.validation, config.seed) if config.validation else dataset


def load_digits() -> Dataset:
    """Load the 1,797 handwritten digits of 8x8 pixels that come with scikit-learn; pixel values are 0 to 16.

    Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI (1998). They have no published split. This one
    is stratified: 1,437 to train on and 360 to test on.
    """
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    images, labels = datasets.load_digits(return_X_y=True)
    parts = train_test_split(
        images.reshape(-1, 8, 8, 1).astype(np.uint8),
        labels.astype(np.int32),
        test_size=360,
        stratify=labels,
        random_state=0,
    )
    train_images, test_images, train_labels, test_labels = parts
    names = tuple(str(digit) for digit in range(10))
    return Dataset(Split(train_images, train_labels), Split(test_images, test_labels), names, "scikit-learn's digits")


def _load_files(config: TrainConfig) -> Dataset:
    if config.data_dir:
        splits, origin = read_local(config, Path(config.data_dir)), f"{config.data_dir}"
    else:
        splits, origin = _read_remote(config)
    return Dataset(splits[0], splits[1], name_classes(config), origin)


def read_local(config: TrainConfig, folder: Path) -> Splits:
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", remedy="give the folder of a local copy by --data-dir")
    splits = _read_tables(config, folder) or _read_originals(config, folder)
    if not splits:
        raise DataError(
            f"{folder} holds no copy of {config.dataset} that we can read",
            why=f"looked for {describe_layouts(config.dataset)}",
            remedy="give the folder that holds these files by --data-dir",
        )
    return splits


def _read_tables(config: TrainConfig, folder: Path) -> Splits | None:
    if rows.find_parquet(folder, "train"):
        return _read_parquet(config, folder)
    if (folder / "dataset_dict.json").is_file():
        return _read_rows(config, folder, rows.open_saved(folder))
    facts = read_sources()[config.dataset]["hub"]
    cached = download.find_in_hub_cache(facts["repository"], _patterns(config), folder)
    return _read_parquet(config, cached / facts["folder"]) if cached else None


def _read_originals(config: TrainConfig, folder: Path) -> Splits | None:
    facts = read_sources()[config.dataset]
    if config.dataset in cifar.BATCHES:
        unpacked = cifar.find_folder(config.dataset, folder)
        if unpacked:
            return cifar.read_folder(config.dataset, config.labels, unpacked, facts["batches"])
        (name, file), *_ = facts["files"].items()
        if (folder / name).is_file():
            download.check(folder / name, file["sha256"])
            return cifar.read_archive(config.dataset, config.labels, folder / name)
    if config.dataset == "fashion_mnist" and (found := idx.find_folder(folder)):
        return idx.read_folder(found)
    if config.dataset == "svhn" and (folder / "train_32x32.mat").is_file():
        return _read_matlab(config, folder)
    return None


def describe_layouts(dataset: str) -> str:
    facts = read_sources()[dataset]
    layouts = [
        "train-*.parquet and test-*.parquet as on the Hugging Face Hub",
        "what save_to_disk of datasets writes",
        f"a cache of the Hub with {facts['hub']['repository']}",
    ]
    if dataset in cifar.BATCHES:
        layouts += [f"the folder {cifar.BATCHES[dataset][0]}"]
    if dataset == "svhn":
        layouts += ["train_32x32.mat and test_32x32.mat"]
    layouts += [", ".join(facts.get("files", ()))]
    return "; or ".join(filter(None, layouts))


def _read_remote(config: TrainConfig) -> tuple[Splits, str]:
    facts, kept = read_sources()[config.dataset], Path(config.cache_dir) / config.dataset
    if "files" in facts:
        for name, file in facts["files"].items():
            download.fetch(file["url"], file["sha256"], kept / name)
        return read_local(config, kept), next(iter(facts["files"].values()))["url"]
    repository = facts["hub"]["repository"]
    folder = download.fetch_from_hub(repository, _patterns(config), kept)
    return _read_parquet(config, folder / facts["hub"]["folder"]), f"{repository} at {folder.name}"


def _parts(config: TrainConfig) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("train", "extra") if config.extra else ("train",), ("test",)


def _patterns(config: TrainConfig) -> list[str]:
    folder = read_sources()[config.dataset]["hub"]["folder"]
    return [f"{folder}/{name}-*.parquet" for names in _parts(config) for name in names]


def _read_parquet(config: TrainConfig, folder: Path) -> Splits:
    names = [name for names in _parts(config) for name in names]
    files = {name: rows.find_parquet(folder, name) for name in names}
    missing = [name for name in names if not files[name]]
    if missing:
        raise DataError(f"{folder} holds no {missing[0]}-*.parquet")
    return _read_rows(config, folder, rows.open_files("parquet", files, folder, Path(config.cache_dir)))


def _read_rows(config: TrainConfig, folder: Path, found: Mapping[str, Any]) -> Splits:
    import datasets

    columns = read_sources()[config.dataset]["columns"]

    def read(names: tuple[str, ...]) -> Split:
        missing = [name for name in names if name not in found]
        if missing:
            raise DataError(f"{folder} holds no split {missing[0]}")
        with rows.explain(folder):
            joined = datasets.concatenate_datasets([found[name] for name in names])
        use = names[0]
        chosen = rows.choose_columns({use: joined}, folder, columns["image"], columns[config.labels], whole=True)
        pictures = Pictures(chosen.splits[use], f"the {use} split of {folder}", size=config.shape)
        labels = rows.read_labels(chosen.splits[use])
        # A label out of range stays out of range.
        return Split(pictures.read(exactly=True), np.clip(labels, -1, np.iinfo(np.int32).max).astype(np.int32))

    train, test = _parts(config)
    return read(train), read(test)


def _read_matlab(config: TrainConfig, folder: Path) -> Splits:
    train, test = ([folder / f"{name}_32x32.mat" for name in names] for names in _parts(config))
    digests = read_sources()["svhn"]["matlab"]
    return matlab.read(train, digests), matlab.read(test, digests)
