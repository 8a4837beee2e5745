"""Opens HDF5 files of strangers, and reads only what lies in such a file plainly. Nothing else here opens HDF5.

The values of a dataset may be those of another file or of a plugin, a link may lead to another file, and few bytes may
unpack to many. What Keras writes needs none of this.
"""

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_HEAP: Final = re.compile(rb"GCOL\x01\0\0\0(.{8})", re.DOTALL)
"""The start of a heap of texts, and its size. A text is in one heap, but may be named any number of times."""
_LARGEST_HEAP: Final = 1 << 20
_MOST_TEXTS: Final = 1000
"""More than a DenseNet has layers."""


class Values:
    """The values of a file. All that is read from it together has no more bytes than the file."""

    def __init__(self, root: Any, size: int) -> None:
        self._root = root
        self._left = size

    def has(self, name: str) -> bool:
        return bool(self._root.links.exists(name.encode()))

    def list_texts(self, group: str, name: str) -> list[str]:
        """Return the texts of an attribute. Raises KeyError or ValueError if there are none."""
        from h5py import check_string_dtype, h5a

        attribute = h5a.open(self._find(group), name.encode())
        if attribute.shape == (0,):  # such a list is not known to be one of texts
            return []
        of_texts = check_string_dtype(attribute.dtype) and len(attribute.shape) == 1
        if not of_texts or attribute.shape[0] > _MOST_TEXTS:
            raise ValueError(f"{name} of {group} is no list of at most {_MOST_TEXTS} texts")
        self._take(f"{name} of {group}", attribute.get_storage_size(), attribute.get_storage_size())
        texts = _make_empty(attribute)
        attribute.read(texts)
        return [text.decode() for text in texts.tolist()]

    def read(self, name: str) -> "NDArray[np.generic]":
        """Return the numbers of a dataset. Raises KeyError or ValueError if there are none that the file itself has."""
        from h5py import h5d, h5s

        found = self._find(name)
        if not isinstance(found, h5d.DatasetID) or found.dtype.kind not in "fiu":
            raise ValueError(f"{name} holds no numbers")
        form = found.get_create_plist()
        plain = form.get_layout() in (h5d.COMPACT, h5d.CONTIGUOUS) and not form.get_external_count()
        size = found.dtype.itemsize * found.get_space().get_simple_extent_npoints()
        self._take(name, size if plain else -1, found.get_storage_size())
        values: NDArray[np.generic] = _make_empty(found)
        found.read(h5s.ALL, h5s.ALL, values)
        return values

    def _find(self, name: str) -> Any:
        """Return an object by its path, each part of which must be a place in this file."""
        from h5py import h5l, h5o

        found = self._root
        for part in filter(None, name.split("/")):
            if found.links.get_info(part.encode()).type != h5l.TYPE_HARD:
                raise ValueError(f"{part} of {name} is a link")
            found = h5o.open(found, part.encode())
        return found

    def _take(self, name: str, size: int, stored: int) -> None:
        if size != stored:
            raise ValueError(f"the values of {name} do not lie in the file as they are")
        self._left -= size
        if self._left < 0:
            raise ValueError("it names more values than it has")


def _make_empty(found: Any) -> Any:
    import numpy as np

    return np.zeros(found.shape, found.dtype)


def _require_small_heaps(path: Path) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if any(int.from_bytes(size, "little") > _LARGEST_HEAP for size in _HEAP.findall(content)):
            raise ValueError("it has longer texts than Keras writes")


@contextmanager
def open_values(path: Path) -> Iterator[Values]:
    import h5py

    _require_small_heaps(path)
    with h5py.File(path, "r") as file:
        yield Values(file.id, path.stat().st_size)
