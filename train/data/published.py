"""Reads the authors' own files, whose places and digests ``sources.yaml`` lists; runs nothing that a pickle asks for.

CIFAR: Krizhevsky, 2009. Fashion-MNIST: Xiao et al., arXiv 1708.07747. SVHN: Netzer et al., NIPS workshop 2011.
"""

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from train.config.origin import ARCHIVES
from train.data import download
from train.data.dataset import Split
from train.data.tables import Parts, explain

Arrays = tuple[NDArray[Any] | None, NDArray[Any] | None]
"""Images and labels of a file, or None."""

_ARRAYS: Final = ("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct")
ALLOWED: Final = {"numpy.ndarray", "numpy.dtype", "_codecs.encode", *_ARRAYS}


class _Unpickler(pickle.Unpickler):
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

    found = loadmat(io.BytesIO(content), variable_names=["X", "y"])
    return found["X"].transpose(3, 0, 1, 2), found["y"].ravel() % 10


READERS: Final = {"pickle": read_pickle, "idx": read_idx, "matlab": read_matlab}


def read(facts: Mapping[str, Any], folder: Path, parts: Parts, label: str) -> dict[str, Split]:
    """Return the splits from the authors' files in a folder, packed or not; none if it does not hold them."""
    published = facts["published"]
    files = {use: [file for part in parts[use] for file in published["splits"][part].items()] for use in parts}
    open_file = _find(facts, folder, files["train"][0][0])
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


def _find(facts: Mapping[str, Any], folder: Path, first: str) -> Callable[[str, str], bytes] | None:
    found = (place for pattern in facts["published"]["places"] for place in sorted(folder.glob(pattern)))
    for place in (folder, *found):
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
