"""The network's layers for Keras: they own variables and running averages; the arithmetic is in pure functions."""

import hashlib
from typing import Any, Final

import keras
import tensorflow as tf

from train.model.block import Mode, Unit, dense_block, dense_block_inference
from train.model.normalization import Statistics, scale_shift
from train.model.randomness import NONE, Dropout

AVERAGING: Final = 0.9
"""Share of the old value that a running average keeps at each step, as in the paper's own code."""


def derive_seed(seed: int, name: str) -> int:
    """A seed for one variable: a function of the run's seed and the variable's name."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4]) >> 1


def he_normal(seed: int, name: str) -> keras.initializers.Initializer:
    """He initialisation (arXiv 1502.01852), as in the paper."""
    return keras.initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal", seed=derive_seed(seed, name))


class _Layer(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """A layer whose variables keep their own dtype and whose initial values follow from (seed, name)."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(**options, autocast=True)
        self.seed = seed

    def _add(self, name: str, shape: tuple[int, ...], initial: str = "he", *, trainable: bool = True) -> keras.Variable:
        initializer = he_normal(self.seed, f"{self.name}/{name}") if initial == "he" else initial
        return self.add_weight(shape=shape, initializer=initializer, name=name, trainable=trainable, autocast=False)

    def _add_unit(self, name: str, inputs: int, outputs: int, size: int) -> Unit:
        return Unit(
            self._add(f"{name}_gamma", (inputs,), "ones"),
            self._add(f"{name}_beta", (inputs,), "zeros"),
            self._add(f"{name}_kernel", (size, size, inputs, outputs)),
        )

    def _add_statistics(self, name: str, channels: int) -> Statistics:
        return Statistics(
            self._add(f"{name}_mean", (channels,), "zeros", trainable=False),
            self._add(f"{name}_variance", (channels,), "ones", trainable=False),
        )


class DenseBlock(_Layer):
    """A dense block; returns its maps normalised, not yet scaled.

    Args:
        layers: composite layers in it.
        growth: maps each of them adds.
        bottleneck: 1x1 convolution to 4 * growth maps before the 3x3 convolution.
        mode: how the backward pass gets at what lies between.
        dropout: share of values dropped after a convolution.
        dropout_seed: int32 (2,) variable that the training step sets; needed with dropout only.
        compiled: XLA will compile the step.
    """

    def __init__(
        self,
        layers: int,
        growth: int,
        *,
        bottleneck: bool,
        mode: Mode,
        dropout: float = 0.0,
        dropout_seed: tf.Variable | None = None,
        place: int = 0,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.count, self.growth, self.bottleneck, self.mode, self.compiled = layers, growth, bottleneck, mode, compiled
        self.rate, self.dropout_seed, self.place = dropout, dropout_seed, place

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the variables, for maps of this shape."""
        channels = int(shape[-1] or 0)
        width = 4 * self.growth
        self.units: list[tuple[Unit, ...]] = []
        self.inner: list[Statistics] = []
        for index in range(1, self.count + 1):
            if self.bottleneck:
                first = self._add_unit(f"layer{index}_1x1", channels, width, 1)
                self.units.append((first, self._add_unit(f"layer{index}_3x3", width, self.growth, 3)))
                self.inner.append(self._add_statistics(f"layer{index}_3x3", width))
            else:
                self.units.append((self._add_unit(f"layer{index}_3x3", channels, self.growth, 3),))
            channels += self.growth
        self.features = self._add_statistics("maps", channels)
        self.built = True

    def call(self, x: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Run the block; in training, also move the running averages."""
        layers = [[Unit(*(variable.value for variable in unit)) for unit in units] for units in self.units]
        if not training:
            features, inner = _read(self.features), [_read(statistics) for statistics in self.inner]
            return dense_block_inference(x, layers, features, inner)
        dropout = Dropout(self.rate, self.dropout_seed).at(self.place) if self.rate else NONE
        block = dense_block(x, layers, self.mode, dropout=dropout, compiled=self.compiled)
        for running, batch in zip([self.features, *self.inner], [block.features, *block.inner], strict=True):
            for average, value in zip(running, batch, strict=True):
                average.assign(average * AVERAGING + value * (1 - AVERAGING))
        return block.maps

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Shape of the maps for a given input shape."""
        return (*shape[:-1], int(shape[-1] or 0) + self.count * self.growth)


class ScaleRectify(_Layer):
    """Scale, shift and ReLU: what is left of norm-ReLU for maps that come normalised."""

    def build(self, shape: tuple[int | None, ...]) -> None:
        """Make the variables."""
        channels = int(shape[-1] or 0)
        self.gamma, self.beta = self._add("gamma", (channels,), "ones"), self._add("beta", (channels,), "zeros")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Apply to normalised maps."""
        return tf.nn.relu(scale_shift(x, self.gamma.value, self.beta.value))

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape does not change."""
        return shape


class StatelessDropout(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """Dropout in a place of its own, outside dense blocks."""

    def __init__(self, rate: float, seed: tf.Variable | None, place: int, **options: Any) -> None:
        super().__init__(**options)
        self.rate, self.dropout_seed, self.place = rate, seed, place

    def call(self, x: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Drop in training, pass otherwise."""
        return Dropout(self.rate, self.dropout_seed).at(self.place).apply(x) if training else x


def _read(statistics: Statistics) -> Statistics:
    return Statistics(*(variable.value for variable in statistics))
