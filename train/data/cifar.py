"""Reads CIFAR-10 and CIFAR-100 as published (Krizhevsky, 2009), without the code that a pickle could run."""

import io
import pickle
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from train.config import Labels
from train.data import download
from train.data.dataset import Split
from train.errors import DataError

ALLOWED: Final = frozenset(
    {
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("_codecs", "encode"),
    }
)

# Exceptions that damaged bytes can raise, because the interpreter of pickles checks nothing itself.
DAMAGE: Final = (
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ArithmeticError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data set needs")
        return super().find_class(module, name)


def read_dictionary(content: bytes, origin: str) -> dict[bytes, Any]:
    """Read a dictionary from a pickle of Python 2, with keys as bytes; raises a DataError."""
    try:
        value = _Reader(io.BytesIO(content), encoding="bytes").load()
    except DAMAGE as error:
        raise DataError(f"cannot read {origin}", why=str(error), remedy="get the file again") from error
    if not isinstance(value, dict):
        raise DataError(f"{origin} does not hold a dictionary, as batches of CIFAR do")
    return value


BATCHES: Final = {
    "cifar10": ("cifar-10-batches-py", [f"data_batch_{number}" for number in range(1, 6)], ["test_batch"]),
    "cifar100": ("cifar-100-python", ["train"], ["test"]),
}

Read = Callable[[str], bytes]


def find_folder(dataset: str, folder: Path) -> Path | None:
    name, _, test = BATCHES[dataset]
    for candidate in (folder, folder / name, *sorted(folder.glob(f"*/{name}")), *sorted(folder.glob(f"*/*/{name}"))):
        if (candidate / test[0]).is_file() and (candidate / BATCHES[dataset][1][0]).is_file():
            return candidate
    return None


def read_folder(dataset: str, labels: Labels, folder: Path, md5: Mapping[str, str]) -> tuple[Split, Split]:
    """Read training and test split from unpacked batches, after checking their MD5 sums, the only published digests."""

    def read(name: str) -> bytes:
        return download.read_checked(folder / name, md5[name], "md5")

    return _read(dataset, labels, read, str(folder))


def read_archive(dataset: str, labels: Labels, archive: Path) -> tuple[Split, Split]:
    folder = BATCHES[dataset][0]
    try:
        with tarfile.open(archive) as tar:

            def read(name: str) -> bytes:
                member = tar.extractfile(f"{folder}/{name}")
                if member is None:
                    raise DataError(f"{archive} holds no {folder}/{name}")
                return member.read()

            return _read(dataset, labels, read, str(archive))
    except (tarfile.TarError, OSError, EOFError, KeyError) as error:
        raise DataError(f"cannot read {archive}", why=str(error), remedy="get the file again") from error


def _read(dataset: str, labels: Labels, read: Read, origin: str) -> tuple[Split, Split]:
    key = b"labels" if dataset == "cifar10" else f"{labels}_labels".encode()
    _, train, test = BATCHES[dataset]
    splits = [_join(names, key, read, origin) for names in (train, test)]
    return splits[0], splits[1]


def _join(names: list[str], key: bytes, read: Read, origin: str) -> Split:
    images, found = [], []
    for name in names:
        batch = read_dictionary(read(name), f"{origin}: {name}")
        try:
            pixels = np.asarray(batch[b"data"], np.uint8)
            images.append(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            found.append(np.asarray(batch[key], np.int32))
        except (KeyError, ValueError) as error:
            raise DataError(f"{origin}: {name} is no batch of CIFAR", why=str(error)) from error
    return Split(np.ascontiguousarray(np.concatenate(images)), np.concatenate(found))
