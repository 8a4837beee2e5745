"""Builds DenseNet and DenseNet-BC (Huang et al., "Densely Connected Convolutional Networks", arXiv 1608.06993)."""

from typing import Any

import keras
import tensorflow as tf

from train.config.configuration import TrainConfig
from train.model import formulation
from train.model.block import Mode
from train.model.formulation import Formulation
from train.model.layers import (
    DenseBlock,
    NativeAveragePooling,
    NativeConvolution,
    NativeDense,
    Pool,
    ScaleRectify,
    StatelessDropout,
    he_normal,
)


def list_layers(config: TrainConfig, form: Formulation) -> list[keras.layers.Layer]:
    """Return all layers in order, from normalised images to logits (batch, classes)."""
    policy = keras.DTypePolicy(config.precision)
    head = policy.variable_dtype
    seed = tf.Variable([0, 0], dtype=tf.int64, trainable=False, name="dropout_seed") if config.dropout else None

    def convolve(channels: int, size: int, name: str, strides: int = 1) -> keras.layers.Layer:
        options: dict[str, Any] = {
            "use_bias": False,
            "kernel_initializer": he_normal(config.seed, f"{name}/kernel"),
            "data_format": form.keras_format,
            "name": name,
            "dtype": policy,
        }
        if form.native:
            return NativeConvolution(channels, size, strides, "same", first=name == "stem", even=even, **options)
        return keras.layers.Conv2D(channels, size, strides, "valid" if even and strides > 1 else "same", **options)

    def pad(pixels: int, name: str) -> list[keras.layers.Layer]:
        options: dict[str, Any] = {"data_format": form.keras_format, "name": name, "dtype": policy}
        return [keras.layers.ZeroPadding2D(pixels, **options)] if even and not form.native else []

    channels, even = config.list_channels(), config.padding == "even"
    shared: dict[str, Any] = {"seed": config.seed, "form": form, "dtype": policy}
    layers = [keras.layers.Permute((3, 1, 2), name="channels_first", dtype=policy)] if form.channels_first else []
    if config.stem == "imagenet":
        layers += [*pad(3, "stem_pad"), convolve(channels[0], 7, "stem", strides=2)]
        layers += [DenseBlock(0, 0, bottleneck=False, mode="plain", name="stem_norm", **shared)]
        layers += [ScaleRectify(pooling="maximum" if form.native else "", even=even, name="stem_scale", **shared)]
        layers += pad(1, "stem_pool_pad")  # zeros, which no map is less than after its ReLU
        padding = "VALID" if even else "SAME"
        layers += [] if form.native else [Pool("max", 3, form, padding, name="stem_pool", dtype=policy)]
    else:
        layers += [convolve(channels[0], 3, "stem")]
    for number, count in enumerate(config.layers, start=1):
        layers.append(
            DenseBlock(
                count,
                config.growth,
                bottleneck=config.bottleneck,
                mode=choose_mode(config, number),
                dropout=config.dropout,
                dropout_seed=seed,
                place=number,
                compiled=config.jit,
                name=f"block{number}",
                **shared,
            )
        )
        layers.append(
            ScaleRectify(
                pooling="average" if form.native and not config.dropout and number < len(config.layers) else "",
                name=f"scale{number}",
                **shared,
            )
        )
        if number < len(config.layers):
            transition = convolve(channels[number], 1, f"transition{number}")
            pool = Pool("average", 2, form, name=f"pool{number}", dtype=policy)
            if config.dropout:
                place = len(config.layers) + number
                dropout = StatelessDropout(config.dropout, seed, place, form, name=f"dropout{number}", dtype=policy)
                layers += [transition, dropout, pool]
            else:
                # The paper convolves, then averages. Both are linear; one mixes channels, the other pixels. So they
                # commute if nothing is between them. Averaging first needs a quarter of the work and of the memory.
                layers += [transition] if form.native else [pool, transition]
    average, dense = keras.layers.GlobalAveragePooling2D, keras.layers.Dense
    if form.native:
        average, dense = NativeAveragePooling, NativeDense
    _freeze(layers, config.frozen)
    return [
        *layers,
        average(data_format=form.keras_format, name="average", dtype=head),
        dense(
            config.classes,
            kernel_initializer=he_normal(config.seed, "classifier/kernel"),
            name="classifier",
            dtype=head,
        ),
    ]


def _freeze(layers: list[keras.layers.Layer], blocks: int) -> None:
    names = [layer.name for layer in layers]
    end = names.index(f"block{blocks + 1}") if f"block{blocks + 1}" in names else len(layers)
    for layer in layers[: end if blocks else 0]:
        layer.trainable = False


def choose_mode(config: TrainConfig, number: int) -> Mode:
    """Return the memory mode of a dense block, counted from 1."""
    return config.memory if not config.recompute_blocks or number in config.recompute_blocks else "plain"


def build(config: TrainConfig, form: Formulation | None = None) -> keras.Model:
    image = keras.Input(config.shape, name="image", dtype=keras.DTypePolicy(config.precision).variable_dtype)
    value = image
    for layer in list_layers(config, form or formulation.choose(config.kernels)):
        value = layer(value)
    return keras.Model(image, value, name=f"densenet_{config.model.replace('-', '_')}")


def count_parameters(model: keras.Model) -> int:
    return sum(int(variable.value.shape.num_elements()) for variable in model.trainable_variables)


def dropout_seed(model: keras.Model) -> Any:
    """Return the variable that a training step sets to (seed, step); None in a model without dropout."""
    return next(
        (layer.dropout_seed for layer in model.layers if getattr(layer, "dropout_seed", None) is not None), None
    )
