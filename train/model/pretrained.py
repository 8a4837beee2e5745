"""Reads the weights of a DenseNet of ``keras.applications`` as those of the same network here.

Keras' network has for each reader of a map a norm with running averages of its own, and adds 1.001e-5 to the variance.
Here a map has one mean and variance, and 1e-5 is added. In inference, scale and shift of a reader make up for both.
"""

import hashlib
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from train.config import presets
from train.config.configuration import NAMED, TrainConfig
from train.config.presets import read_table
from train.errors import DataError, UsageError
from train.model import EPSILON, hdf5

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = dict[str, NDArray[np.generic]]

PADDING: Final = "even"
SIZES: Final = ("121", "169", "201")
KERAS_EPSILON: Final = 1.001e-5

MEAN: Final = tuple(255 * value for value in (0.485, 0.456, 0.406))
STD: Final = tuple(255 * value for value in (0.229, 0.224, 0.225))
"""Mean and deviation of red, green and blue in byte units, by which Keras prepares images for these networks."""

_LAYER: Final = re.compile(rb"conv([2-5])_block(\d{1,2})_1_conv")


class Source(NamedTuple):
    size: str  # name of the model
    digest: str
    name: str  # of Keras' file; empty if Keras does not publish the file


def identify(source: str) -> Source:
    """Return what a file holds, or what ``keras:densenet121`` names, without loading it.

    Raises a UsageError for another name, a DataError for another file.
    """
    files: dict[str, str] = read_table("keras")["files"]
    if source.startswith(NAMED):
        name = f"{source.removeprefix(NAMED)}_weights_tf_dim_ordering_tf_kernels_notop.h5"
        if name not in files:
            names = ", ".join(f"{NAMED}densenet{size}" for size in SIZES)
            raise UsageError(f"unknown weights: {source!r}", why=f"known are {names}")
        return Source(_find_size(name), f"md5:{files[name]}", name)
    path = Path(source)
    try:
        with path.open("rb") as file:
            md5 = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
            for name, published in files.items():
                if md5 == published:
                    return Source(_find_size(name), f"md5:{md5}", name)
            file.seek(0)
            return Source(_count_layers(path), hashlib.file_digest(file, "sha256").hexdigest(), "")
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}", why=str(error)) from error


def _find_size(name: str) -> str:
    return name.removeprefix("densenet").partition("_")[0]


def _count_layers(path: Path) -> str:
    """Return the model with as many layers in each block as a file names."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        named = {(int(block), int(layer)) for block, layer in _LAYER.findall(content)}
    layers = [max((layer for number, layer in named if number == block), default=0) for block in range(2, 6)]
    for size in SIZES:
        if read_table("presets")[size]["layers"] == layers:
            return size
    raise _refuse(path, "it does not name the layers of such a network")


def _refuse(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} has no weights of DenseNet-121, 169 or 201 as keras.applications saves them",
        why=why,
        remedy="give such a file in HDF5 format, or the folder of a run",
    )


def describe(source: str) -> dict[str, Any]:
    """Return the fields of a configuration that follow from the weights: model, padding, and their digest."""
    weights = identify(source)
    model = presets.resolve(read_table("presets"), weights.size, {})
    return {**model, "padding": PADDING, "init_sha256": weights.digest}


def fetch(config: TrainConfig) -> Path:
    """Return the file of a configuration's weights, after a download if it is named and not in the cache."""
    from train.system import download

    if not config.fetches_weights:
        return Path(config.init_from)
    name = identify(config.init_from).name
    table, path = read_table("keras"), Path(config.cache_dir) / "keras" / name
    otherwise = f"fetch that file where there is one, and give it by --init-from {name}"
    return download.fetch(table["url"] + name, table["files"][name], path, otherwise)


def read(path: Path, size: str) -> "Values":
    """Read the weights of a model, by the names that they have here; raises a DataError if the file lacks some."""
    preset = read_table("presets")[size]
    try:
        return dict(_convert(_read_layers(path), preset["layers"]))
    except (OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _refuse(path, str(error)) from error


def _read_layers(path: Path) -> "Iterator[list[NDArray[np.generic]]]":
    """Yield the weights of each layer that has some, in the order of Keras' network."""
    with hdf5.open_values(path) as file:
        root = "model_weights" if file.has("model_weights") else ""  # a whole model has its weights in a group
        for layer in file.list_texts(root, "layer_names"):
            group = f"{root}/{layer}"
            if weights := [file.read(f"{group}/{name}") for name in file.list_texts(group, "weight_names")]:
                yield weights


def _convert(layers: "Iterator[list[NDArray[Any]]]", blocks: list[int]) -> "Iterator[tuple[str, NDArray[np.generic]]]":
    import numpy as np

    def take(count: int) -> Any:
        weights = next(layers, [])
        if len(weights) != count:
            raise ValueError(f"it has a layer with {len(weights)} weights in place of {count}")
        return weights

    def convolution(name: str) -> Iterator[tuple[str, Any]]:
        yield f"{name}kernel", take(1)[0]

    def norm() -> Any:
        return np.stack(take(4)).astype(np.float64)  # gamma, beta, mean, variance

    def fold(name: str, reader: Any, maps: Any) -> Iterator[tuple[str, Any]]:
        """Yield scale and shift by which a reader of `maps`, normalised here, computes what it does in Keras."""
        gamma, beta, mean, variance = reader
        mean_here, variance_here = maps[2:, : len(mean)]
        scale = gamma / np.sqrt(variance + KERAS_EPSILON)
        yield f"{name}gamma", (scale * np.sqrt(variance_here + EPSILON)).astype(np.float32)
        yield f"{name}beta", (beta + scale * (mean_here - mean)).astype(np.float32)

    def statistics(name: str, maps: Any) -> Iterator[tuple[str, Any]]:
        yield f"{name}_mean", maps[2].astype(np.float32)
        yield f"{name}_variance", maps[3].astype(np.float32)

    yield from convolution("stem/")
    maps = norm()
    yield from statistics("stem_norm/maps", maps)
    yield from fold("stem_scale/", maps, maps)
    for number, count in enumerate(blocks, start=1):
        readers = []
        for index in range(1, count + 1):
            layer = f"block{number}/layer{index}"
            readers.append((f"{layer}_1x1_", norm()))
            yield from convolution(f"{layer}_1x1_")
            inner = norm()
            yield from statistics(f"{layer}_3x3", inner)
            yield from fold(f"{layer}_3x3_", inner, inner)
            yield from convolution(f"{layer}_3x3_")
        maps = norm()  # the norm after the block reads all of its maps
        yield from statistics(f"block{number}/maps", maps)
        for name, reader in [*readers, (f"scale{number}/", maps)]:
            yield from fold(name, reader, maps)
        if number < len(blocks):
            yield from convolution(f"transition{number}/")
    for kernel, bias in layers:
        yield from (("classifier/kernel", kernel), ("classifier/bias", bias))


def is_imagenet(class_names: tuple[str, ...]) -> bool:
    """Say whether classes are the 1,000 of ImageNet, named as its folders are, in the order of Keras' classifier."""
    ends = ("n01440764", "n15075141")
    names = list(class_names)
    return len(names) == 1000 and names == sorted(names) and (names[0], names[-1]) == ends
