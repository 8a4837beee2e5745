import gzip
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from train.config.configuration import TrainConfig, name_classes
from train.config.presets import read_table
from train.config.resolution import complete
from train.data import download, own, published, tables
from train.data.checks import check
from train.data.dataset import Dataset, Split
from train.data.layout import Place
from train.errors import DataError, UsageError, require_folder

DIGITS: Final = "datasets/data/digits.csv.gz"
"""Where scikit-learn keeps the digits: a line for each, 64 pixels and the label."""


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


def load_measured(config: TrainConfig, shape: tuple[int, int, int]) -> Dataset:
    """Load images to measure a network by, which takes this shape: the test split, or all if there are no splits."""
    if not config.own:
        return load(config)
    dataset = own.load(config, shape)
    return replace(dataset, divided=config.normalize == "range")


def load_digits() -> Dataset:
    """Load the 1,797 handwritten digits of 8x8 pixels that come with scikit-learn; pixel values are 0 to 16.

    Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI (1998). They have no published split. This one
    is that of scikit-learn's ``train_test_split(..., test_size=360, stratify=labels, random_state=0)``, written down in
    ``digits.txt``: 1,437 to train on and then 360 to test on. scikit-learn itself is not imported: that takes a second
    of the processor. Raises a DataError if its file is not there.
    """
    found = find_spec("sklearn")
    try:
        with gzip.open(Path(found.origin or "" if found else "").parent / DIGITS, "rt") as file:
            table = np.loadtxt(file, delimiter=",", dtype=np.int32)
    except OSError as error:
        raise DataError(
            "the digits are not here", why=f"they come with scikit-learn: {error}", remedy="install scikit-learn"
        ) from error
    order = Path(__file__).with_name("digits.txt").read_text(encoding="ascii").split()
    table = table[np.array(order, dtype=np.int64)]
    images, labels = table[:, :-1].reshape(-1, 8, 8, 1).astype(np.uint8), table[:, -1].copy()
    names = tuple(str(digit) for digit in range(10))
    train, test = (Split(images[rows], labels[rows]) for rows in (slice(None, -360), slice(-360, None)))
    return Dataset(train, test, names, "scikit-learn's digits")


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
        found = tables.open_folder(Place(place, str(place)), cache, source, parts, **names, numbered=True).splits
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
