from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from train.config.presets import read_table
from train.config.resolution import complete
from train.config.run import TrainConfig, name_classes
from train.data import download, own, published, tables
from train.data.checks import check
from train.data.dataset import Dataset, Split
from train.errors import DataError, UsageError, require_folder


def read_sources() -> dict[str, Any]:
    return read_table("data/sources")


def load(config: TrainConfig) -> Dataset:
    """Load the data of a run: from ``--data-dir``, else from the cache, else from its source.

    Raises a DataError if it is missing or cannot be trained on, an IntegrityError if the digest of a file is wrong.
    """
    if config.own:
        dataset = own.load(config)
        config = complete(config, dataset.train.images.shape[1:], dataset.class_names)
    elif config.dataset == "digits":
        if config.data_dir:
            raise UsageError("--data-dir has no meaning for digits", why="they come with scikit-learn")
        dataset = load_digits()
    else:
        dataset = _load_known(config)
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
    images, labels = images.reshape(-1, 8, 8, 1).astype(np.uint8), labels.astype(np.int32)
    parts = train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)
    names = tuple(str(digit) for digit in range(10))
    return Dataset(Split(*parts[::2]), Split(*parts[1::2]), names, "scikit-learn's digits")


def _load_known(config: TrainConfig) -> Dataset:
    facts, cache = read_sources()[config.dataset], Path(config.cache_dir)
    hub, columns, files = facts["hub"], facts["columns"], facts.get("files", {})
    parts = {"train": ["train", "extra"] if config.extra else ["train"], "test": ["test"]}
    patterns = [f"{hub['folder']}/{name}-*.parquet" for names in parts.values() for name in names]
    folder, source = Path(config.data_dir or cache / config.dataset), config.data_dir
    if config.data_dir:
        require_folder(folder)
        if cached := download.find_in_hub_cache(hub["repository"], patterns, folder):
            folder = cached / hub["folder"]
    elif files:
        source = next(iter(files.values()))["url"]
        for name, file in files.items():
            download.fetch(file["url"], file["sha256"], folder / name)
    else:
        snapshot = download.fetch_from_hub(hub["repository"], patterns, folder)
        folder, source = snapshot / hub["folder"], f"{hub['repository']} at {snapshot.name}"
    if place := _find_tables(folder):
        names = {"image": columns["image"], "label": columns[config.labels]}
        found, _ = tables.open_folder(place, cache, source, parts, **names, numbered=True)
        pictures = {use: replace(split.images, size=config.shape, exactly=True) for use, split in found.items()}
        splits = {use: Split(pictures[use][:], split.labels) for use, split in found.items()}
    else:
        splits = published.read(facts, folder, parts, config.labels)
    if not splits:
        originals = ", ".join(name for kept in facts["published"]["splits"].values() for name in kept)
        raise DataError(
            f"{folder} holds no copy of {config.dataset} that we can read",
            why="looked for train-*.parquet and test-*.parquet as on the Hugging Face Hub; or what save_to_disk of "
            f"datasets writes; or a cache of the Hub with {hub['repository']}; or {', '.join([originals, *files])}",
            remedy="give the folder that holds these files by --data-dir",
        )
    return Dataset(splits["train"], splits["test"], name_classes(config), source)


def _find_tables(folder: Path) -> Path | None:
    """Return the folder with the tables of a known data set: this one, or one in it."""
    patterns = ("dataset_dict.json", "train-*.parquet", "train.parquet", "train/*.parquet")
    places = (folder, folder / "data", *sorted(folder.glob("*/")))
    return next((place for place in places for pattern in patterns if any(place.glob(pattern))), None)
