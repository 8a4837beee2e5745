"""Builds a network from Keras' own layers alone, so that programs without this project can load it.

It has one output for each class: its probability. A norm of a dense block has the statistics of the maps that it reads.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from train.model import EPSILON

if TYPE_CHECKING:
    from train.use.network import Network

Values = dict[str, NDArray[Any]]

IMAGES: Final = "images"
"""Name of the input: bytes (batch, height, width, channels)."""


def build(network: "Network") -> keras.Model:
    """Build the network in float32, from images as bytes, in the original size, to probabilities."""
    config, inputs = network.config, network.inputs
    layers = keras.layers
    image = keras.Input(inputs.shape, name=IMAGES, dtype="uint8")
    scale = [1 / deviation for deviation in inputs.std]
    offset = [-mean / deviation for mean, deviation in zip(inputs.mean, inputs.std, strict=True)]
    x = layers.Rescaling(scale, offset, name="normalize")(image)
    wide = config.stem == "imagenet"
    filters = config.list_channels()
    even = wide and config.padding == "even"
    padding = "valid" if even else "same"
    x = layers.ZeroPadding2D(3, name="stem_pad")(x) if even else x
    x = layers.Conv2D(filters[0], 7 if wide else 3, 2 if wide else 1, padding, use_bias=False, name="stem")(x)
    if wide:
        x = _normalize(x, "stem_norm")
        x = layers.ZeroPadding2D(1, name="stem_pool_pad")(x) if even else x
        x = layers.MaxPooling2D(3, 2, padding, name="stem_pool")(x)
    for number, count in enumerate(config.layers, start=1):
        for index in range(1, count + 1):
            name, new = f"block{number}_layer{index}", x
            if config.bottleneck:
                new = _normalize(new, f"{name}_1x1_norm")
                new = layers.Conv2D(4 * config.growth, 1, use_bias=False, name=f"{name}_1x1")(new)
            new = _normalize(new, f"{name}_3x3_norm")
            new = layers.Conv2D(config.growth, 3, padding="same", use_bias=False, name=f"{name}_3x3")(new)
            x = layers.Concatenate(name=f"{name}_concat")([x, new])
        x = _normalize(x, f"norm{number}")
        if number < len(config.layers):
            x = layers.Conv2D(filters[number], 1, use_bias=False, name=f"transition{number}")(x)
            x = layers.AveragePooling2D(2, name=f"pool{number}")(x)
    x = layers.GlobalAveragePooling2D(name="average")(x)
    probabilities = layers.Dense(config.classes, activation="softmax", name="classifier")(x)
    model = keras.Model(image, probabilities, name=network.model.name)
    values = {variable.path: np.asarray(variable.value, np.float32) for variable in network.model.variables}
    for layer, weights in name_weights(network.config.layers, values, bottleneck=config.bottleneck, wide=wide):
        model.get_layer(layer).set_weights(weights)
    return model


def _normalize(x: Any, name: str) -> Any:
    return keras.layers.ReLU(name=f"{name}_relu")(keras.layers.BatchNormalization(epsilon=EPSILON, name=name)(x))


def name_weights(
    blocks: tuple[int, ...], values: Values, *, bottleneck: bool, wide: bool
) -> Iterator[tuple[str, list[NDArray[Any]]]]:
    """Yield the weights of each layer, in Keras' order; `values` are those of the trained model by their paths."""

    def norm(scale: str, statistics: str, channels: int) -> list[NDArray[Any]]:
        parts = [values[f"{statistics}_{name}"][:channels] for name in ("mean", "variance")]
        return [values[f"{scale}gamma"], values[f"{scale}beta"], *parts]

    yield "stem", [values["stem/kernel"]]
    if wide:
        yield "stem_norm", norm("stem_scale/", "stem_norm/maps", len(values["stem_scale/gamma"]))
    for number, count in enumerate(blocks, start=1):
        block = f"block{number}"
        for index in range(1, count + 1):
            layer, first = f"{block}/layer{index}", "1x1" if bottleneck else "3x3"
            name = f"{block}_layer{index}"
            channels = len(values[f"{layer}_{first}_gamma"])
            yield f"{name}_{first}_norm", norm(f"{layer}_{first}_", f"{block}/maps", channels)
            yield f"{name}_{first}", [values[f"{layer}_{first}_kernel"]]
            if bottleneck:
                channels = len(values[f"{layer}_3x3_gamma"])
                yield f"{name}_3x3_norm", norm(f"{layer}_3x3_", f"{layer}_3x3", channels)
                yield f"{name}_3x3", [values[f"{layer}_3x3_kernel"]]
        yield f"norm{number}", norm(f"scale{number}/", f"{block}/maps", len(values[f"scale{number}/gamma"]))
        if number < len(blocks):
            yield f"transition{number}", [values[f"transition{number}/kernel"]]
    yield "classifier", [values["classifier/kernel"], values["classifier/bias"]]
