"""Finds the files of a data set: a local copy in any of the usual layouts, else the cache, else the network."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from train.config import TrainConfig
from train.data import cifar, download, hub, idx, matlab, parquet
from train.data.dataset import Dataset, Split
from train.errors import DataError

Splits = tuple[Split, Split]


@cache
def read_sources() -> dict[str, Any]:
    """The table beside this module: where data sets come from and what their files must be."""
    value: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "sources.yaml").read_text(encoding="utf-8"))
    return value


def load(config: TrainConfig) -> Dataset:
    """Load a data set that is kept in files.

    Raises:
        DataError: it is missing, unreadable, or not what it says it is.
        IntegrityError: a file's digest is not the known one.
    """
    if config.data_dir:
        splits, origin = read_local(config, Path(config.data_dir)), f"{config.data_dir}"
    else:
        splits, origin = _read_remote(config)
    names = read_sources()[config.dataset].get("names") or [str(number) for number in range(config.classes)]
    return Dataset(splits[0], splits[1], tuple(names), origin)


def read_local(config: TrainConfig, folder: Path) -> Splits:
    """Read a local copy, in whatever layout it is.

    Raises:
        DataError: the folder is missing or holds no layout we know.
        IntegrityError: an archive in it is not the known one.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", remedy="give the folder of a local copy by --data-dir")
    facts = read_sources()[config.dataset]
    if parquet.find(folder, "train"):
        return _read_parquet(config, folder)
    if config.dataset in cifar.BATCHES:
        unpacked = cifar.find_folder(config.dataset, folder)
        if unpacked:
            return cifar.read_folder(config.dataset, config.labels, unpacked)
        (name, file), *_ = facts["files"].items()
        if (folder / name).is_file():
            download.check(folder / name, file["sha256"])
            return cifar.read_archive(config.dataset, config.labels, folder / name)
    if config.dataset == "fashion_mnist" and idx.find(folder, "train-images-idx3-ubyte"):
        return idx.read_folder(folder)
    if config.dataset == "svhn" and (folder / "train_32x32.mat").is_file():
        return _read_matlab(config, folder)
    raise DataError(
        f"{folder} holds no copy of {config.dataset} that we can read",
        why=f"looked for {describe_layouts(config.dataset)}",
        remedy="give the folder that holds these files by --data-dir",
    )


def describe_layouts(dataset: str) -> str:
    """The files that a local copy may consist of, in words."""
    layouts = ["train-*.parquet and test-*.parquet as on the Hugging Face Hub"]
    if dataset in cifar.BATCHES:
        layouts += [f"the folder {cifar.BATCHES[dataset][0]}"]
    if dataset == "svhn":
        layouts += ["train_32x32.mat and test_32x32.mat"]
    layouts += [", ".join(read_sources()[dataset].get("files", ()))]
    return "; or ".join(filter(None, layouts))


def _read_remote(config: TrainConfig) -> tuple[Splits, str]:
    facts, kept = read_sources()[config.dataset], Path(config.cache_dir) / config.dataset
    if "hub" in facts:
        folder, revision = hub.fetch_folder(facts["hub"]["repository"], facts["hub"]["folder"], kept)
        return _read_parquet(config, folder), f"{facts['hub']['repository']} at {revision}"
    for name, file in facts["files"].items():
        download.fetch(file["url"], file["sha256"], kept / name)
    return read_local(config, kept), next(iter(facts["files"].values()))["url"]


def _read_parquet(config: TrainConfig, folder: Path) -> Splits:
    columns = read_sources()[config.dataset]["parquet"]
    splits = []
    for split in ("train", "test", *(["extra"] if config.extra else [])):
        files = parquet.find(folder, split)
        if not files:
            raise DataError(f"{folder} holds no {split}-*.parquet")
        splits.append(parquet.read(files, columns["image"], columns[config.labels]))
    return _add_extra(splits)


def _read_matlab(config: TrainConfig, folder: Path) -> Splits:
    names = ("train", "test", *(["extra"] if config.extra else []))
    return _add_extra([matlab.read(folder / f"{name}_32x32.mat") for name in names])


def _add_extra(splits: list[Split]) -> Splits:
    train, test, *extra = splits
    for more in extra:
        train = Split(np.concatenate([train.images, more.images]), np.concatenate([train.labels, more.labels]))
    return train, test
