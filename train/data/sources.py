"""Loads the data of a run: the user's own images, the digits of scikit-learn, or a data set that `sources.yaml` lists.

Of a listed one, the copies of the Hugging Face Hub are read, and the files of its authors: CIFAR (Krizhevsky, 2009),
Fashion-MNIST (Xiao et al., arXiv 1708.07747) and SVHN (Netzer et al., NIPS workshop 2011).
"""

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import TrainConfig, name_classes
from train.config.origin import ARCHIVES
from train.config.presets import read_table
from train.config.resolution import complete
from train.data import own, tables
from train.data.dataset import Dataset, Split, check
from train.data.hub import fetch_from_hub, find_in_hub_cache
from train.data.layout import Place
from train.data.tables import Parts, explain
from train.errors import DataError, UsageError, require_folder
from train.system import download

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
    package = find_spec("sklearn")
    try:
        with gzip.open(Path(package.origin or "" if package else "").parent / DIGITS, "rt") as file:
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
        if cached := find_in_hub_cache(hub["repository"], patterns, folder):
            folder = cached / hub["folder"]
    elif files:
        source = next(iter(files.values()))["url"]
        for name, file in files.items():
            download.fetch(file["url"], file["sha256"], folder / name)
    else:
        snapshot = fetch_from_hub(hub["repository"], patterns, folder)
        folder, source = snapshot / hub["folder"], f"{hub['repository']} at {snapshot.name}"
    if place := _find_tables(folder):
        names = {"image": columns["image"], "label": columns[config.labels]}
        opened = tables.open_folder(Place(place, str(place)), cache, source, parts, **names, numbered=True).splits
        pictures = {use: replace(split.images, size=config.shape, exactly=True) for use, split in opened.items()}
        splits = {use: Split(pictures[use][:], split.labels) for use, split in opened.items()}
    else:
        splits = read_published(facts, folder, parts, config.labels)
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


Arrays = tuple[NDArray[Any] | None, NDArray[Any] | None]
"""Images and labels of a file, or None."""

_ARRAYS: Final = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
ALLOWED: Final = {"numpy.ndarray", "numpy.dtype", "_codecs.encode", *_ARRAYS}


class _Unpickler(pickle.Unpickler):
    """Reads arrays, and refuses what else a pickle asks for, because that could run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        return super().find_class(module, name)


def read_pickle(content: bytes, label: str) -> Arrays:
    """Read a batch of CIFAR: a dictionary of Python 2, with rows of three planes of 32x32 bytes."""
    batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    images = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, np.asarray(batch[label.encode()])


def read_idx(content: bytes, _: str) -> Arrays:
    """Read gray images, or labels, from a file of bytes with up to three dimensions."""
    zero, kind, dimensions = struct.unpack_from(">HBB", content)
    start = 4 + 4 * dimensions
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    if (zero, kind) != (0, 8) or dimensions not in {1, 3}:
        raise ValueError("it is no IDX file of bytes with one or three dimensions")
    if len(content) - start != math.prod(shape):
        raise ValueError(f"it holds {len(content) - start} bytes, and its header says {math.prod(shape)}")
    array = np.frombuffer(content, np.uint8, offset=start).reshape(shape)
    return (array[..., None], None) if dimensions == 3 else (None, array)


def read_matlab(content: bytes, _: str) -> Arrays:
    """Read cropped digits by SciPy, which damaged files can crash: the digest is checked before.

    The files label the digit 0 as 10, the result labels it as 0.
    """
    from scipy.io import loadmat  # type: ignore[import-untyped]

    arrays = loadmat(io.BytesIO(content), variable_names=["X", "y"])
    return arrays["X"].transpose(3, 0, 1, 2), arrays["y"].ravel() % 10


READERS: Final = {"pickle": read_pickle, "idx": read_idx, "matlab": read_matlab}


def read_published(facts: Mapping[str, Any], folder: Path, parts: Parts, label: str) -> dict[str, Split]:
    """Return the splits from the authors' files in a folder, packed or not; none if it does not hold them."""
    published = facts["published"]
    files = {use: [file for part in parts[use] for file in published["splits"][part].items()] for use in parts}
    open_file = _find_published(facts, folder, files["train"][0][0])
    if not open_file:
        return {}
    reader, key = READERS[published["reader"]], published.get("labels", {}).get(label, "")

    def read_file(name: str, digest: str) -> Arrays:
        with explain(f"{folder}: {name}", remedy="get the file again"):
            return reader(open_file(name, digest), key)

    def join(kept: list[tuple[str, str]]) -> Split:
        images, labels = zip(*(read_file(*file) for file in kept), strict=True)
        with explain(folder, remedy="get the file again"):
            pixels, numbers = (np.concatenate([one for one in each if one is not None]) for each in (images, labels))
            return Split(np.ascontiguousarray(pixels), numbers.astype(np.int32))

    return {use: join(kept) for use, kept in files.items()}


def _find_published(facts: Mapping[str, Any], folder: Path, first: str) -> Callable[[str, str], bytes] | None:
    places = (place for pattern in facts["published"]["places"] for place in sorted(folder.glob(pattern)))
    for place in (folder, *places):
        if (place / first).is_file() or (place / f"{first}.gz").is_file():
            return lambda name, digest: _open(place / name, digest)
    for name, file in facts.get("files", {}).items():
        if name.endswith(ARCHIVES) and (folder / name).is_file():
            download.check(folder / name, file["sha256"])
            with explain(folder / name, remedy="get the file again"), tarfile.open(folder / name) as tar:
                opened = ((PurePosixPath(member.name).name, tar.extractfile(member)) for member in tar)
                contents = {name: file.read() for name, file in opened if file}
            return lambda name, _: contents[name]
    return None


def _open(path: Path, digest: str) -> bytes:
    packed = path.with_name(f"{path.name}.gz")
    content = download.read_checked(packed if packed.is_file() else path, digest)
    return gzip.decompress(content) if packed.is_file() else content
