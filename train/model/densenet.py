"""Builds DenseNet and DenseNet-BC (Huang et al., "Densely Connected Convolutional Networks", arXiv 1608.06993).

Its Keras layers own the variables, and pure functions do the arithmetic.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import keras
import tensorflow as tf

from train.config.configuration import TrainConfig
from train.model import formulation
from train.model.block import Mode, Unit, dense_block, dense_block_inference
from train.model.formulation import Formulation
from train.model.normalization import Statistics, scale_rectify
from train.model.randomness import make_dropout
from train.native import operations

AVERAGING: Final = 0.9
"""Share of its old value that a running average keeps at each step, as in the paper's own code."""


def derive_seed(seed: int, name: str) -> int:
    """Derive the seed of a variable from the run's seed and the variable's name."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:4]) >> 1


def he_normal(seed: int, name: str) -> keras.initializers.Initializer:
    """Make the initializer of He et al. (arXiv 1502.01852), as in the paper."""
    return _OnHost(2.0, "fan_in", "untruncated_normal", seed=derive_seed(seed, name))


class _OnHost(keras.initializers.VarianceScaling):  # type: ignore[misc]  # keras has no types
    """An initializer that draws on the CPU, so that the initial weights are the same on every device."""

    def __call__(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        with tf.device("CPU:0"):
            return super().__call__(shape, dtype)


class _Layer(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """A layer whose variables keep their own dtype, with initial values that depend on (seed, name) alone."""

    def __init__(self, seed: int, form: Formulation, **options: Any) -> None:
        super().__init__(**options, autocast=True)
        self.seed, self.form = seed, form

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
    """A dense block, whose maps are normalised, but not scaled."""

    def __init__(
        self,
        layers: int,  # composite layers
        growth: int,  # maps that each layer adds
        *,
        bottleneck: bool,  # whether a 1x1 convolution to 4 * growth maps precedes the 3x3 convolution
        mode: Mode,
        dropout: float = 0.0,
        dropout_seed: tf.Variable | None = None,  # int64 (2,), set by the training step; needed only with dropout
        place: int = 0,
        compiled: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.count, self.growth, self.bottleneck, self.mode, self.compiled = layers, growth, bottleneck, mode, compiled
        self.rate, self.dropout_seed, self.place = dropout, dropout_seed, place

    def build(self, shape: tuple[int | None, ...]) -> None:
        channels = int(shape[self.form.axis] or 0)
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
        """Run the block; in training, also update the running averages."""
        layers = [[Unit(*(variable.value for variable in unit)) for unit in units] for units in self.units]
        if not (training and self.trainable):  # a frozen block keeps its running averages, and uses them
            features, inner = _read(self.features), [_read(statistics) for statistics in self.inner]
            # TensorFlow watches every variable, but nothing before a frozen block is trained.
            maps = dense_block_inference(x, layers, features, inner, self.form)
            return tf.stop_gradient(maps) if training else maps
        dropout = make_dropout(self.rate, self.dropout_seed, self.form).at(self.place)
        dropout = dropout.derive([(i, j) for i in range(self.count) for j in range(1 + self.bottleneck)])
        block = dense_block(x, layers, self.mode, self.form, dropout=dropout, compiled=self.compiled)
        if self.form.lockstep and not self.form.lockstep.leads:
            return block.maps  # all shards have the same statistics
        averages = [variable.value for statistics in (self.features, *self.inner) for variable in statistics]
        pieces = [list(part) for part in zip(*block.features, strict=True)]
        values = [*pieces, *([value] for statistics in block.inner for value in statistics)]
        move = move_averages_compiled if self.form.compile_updates and not self.compiled else move_averages
        move(averages, values)
        return block.maps

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        sizes = list(shape)
        sizes[self.form.axis] = int(shape[self.form.axis] or 0) + self.count * self.growth
        return tuple(sizes)


class ScaleRectify(_Layer):
    """Scales, shifts and rectifies normalised maps, which is the rest of norm-ReLU.

    With `maximum`, it also does what `Pool` does after it. If it is `deferred`, it only owns the weights, and the
    `NativeTransition` after it does the work.
    """

    def __init__(self, *, maximum: bool = False, even: bool = False, deferred: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.maximum, self.even, self.deferred = maximum, even, deferred

    def build(self, shape: tuple[int | None, ...]) -> None:
        channels = int(shape[self.form.axis] or 0)
        self.gamma, self.beta = self._add("gamma", (channels,), "ones"), self._add("beta", (channels,), "zeros")
        self.built = True

    def read(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self.gamma.value, self.beta.value

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.deferred:
            return x
        if self.maximum:
            return operations.scale_rectify(x, *self.read(), maximum=True, even=self.even)
        return scale_rectify(x, *self.read(), self.form)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (*shape[:2], *((size + 1) // 2 if size else None for size in shape[2:])) if self.maximum else shape


class Pool(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    """Maximum or average over windows of size x size pixels with stride 2; Keras' layers would transpose maps."""

    def __init__(
        self, kind: Literal["max", "average"], size: int, form: Formulation, padding: str = "VALID", **options: Any
    ) -> None:
        super().__init__(**options)
        self.kind, self.size, self.form, self.padding = kind, size, form, padding

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.form.native:
            return operations.average_squares(x)
        pool = tf.nn.max_pool2d if self.kind == "max" else tf.nn.avg_pool2d
        return pool(x, self.size, 2, self.padding, data_format=self.form.data_format)


class NativeConvolution(keras.layers.Conv2D):  # type: ignore[misc]  # keras has no types
    """A native convolution without bias, stride 1 or 2; the gradient of its input is left out if it is `first`."""

    def __init__(self, *arguments: Any, first: bool, even: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.first, self.even = first, even

    def add_weight(self, *arguments: Any, **options: Any) -> keras.Variable:
        """Make a weight that keeps its own dtype: the kernels round it, and its gradient is float32."""
        return super().add_weight(*arguments, **options | {"autocast": False})

    def call(self, x: tf.Tensor) -> tf.Tensor:
        if self.strides == (2, 2):
            return operations.convolve_by_two(x, self.kernel.value, even=self.even)
        return operations.convolve(x, self.kernel.value, first=self.first)


class NativeTransition(NativeConvolution):
    """What lies between two blocks: scale, ReLU, an average of 2x2 pixels, and a 1x1 convolution.

    Another layer owns the weights of the scale.
    """

    def __init__(self, *arguments: Any, read_scale: Callable[[], tuple[tf.Tensor, tf.Tensor]], **options: Any) -> None:
        super().__init__(*arguments, first=False, **options)
        self.read_scale = read_scale  # not the layer, whose weights Keras would count as those of this one too

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return operations.run_transition(x, *self.read_scale(), self.kernel.value)

    def compute_output_shape(self, shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return (shape[0], self.filters, *(size // 2 if size else None for size in shape[2:]))


class NativeAveragePooling(keras.layers.GlobalAveragePooling2D):  # type: ignore[misc]  # keras has no types
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return operations.average_pixels(x)


class NativeDense(keras.layers.Dense):  # type: ignore[misc]  # keras has no types
    def call(self, x: tf.Tensor) -> tf.Tensor:
        return operations.apply_dense(x, self.kernel.value, self.bias.value)


class StatelessDropout(keras.layers.Layer):  # type: ignore[misc]  # keras has no types
    def __init__(self, rate: float, seed: tf.Variable | None, place: int, form: Formulation, **options: Any) -> None:
        super().__init__(**options)
        self.rate, self.dropout_seed, self.place, self.form = rate, seed, place, form

    def call(self, x: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        if not training:
            return x
        return make_dropout(self.rate, self.dropout_seed, self.form).at(self.place).derive([()]).apply(x, self.form)


def move_averages(averages: Sequence[tf.Variable], values: Sequence[Sequence[tf.Tensor]]) -> None:
    """Update running averages with the values of a batch, which are given in consecutive pieces."""
    for average, pieces in zip(averages, values, strict=True):
        value = tf.concat(pieces, axis=0) if len(pieces) > 1 else pieces[0]
        average.assign(average * AVERAGING + value * (1 - AVERAGING))


move_averages_compiled: Final = tf.function(move_averages, jit_compile=True, autograph=False)
"""`move_averages` as one XLA program."""


def _read(statistics: Statistics) -> Statistics:
    return Statistics(*(variable.value for variable in statistics))


def list_layers(config: TrainConfig, form: Formulation) -> list[keras.layers.Layer]:
    """Return all layers in order, from normalised images to logits (batch, classes)."""
    policy = keras.DTypePolicy(config.precision)
    head = policy.variable_dtype
    seed = tf.Variable([0, 0], dtype=tf.int64, trainable=False, name="dropout_seed") if config.dropout else None

    def describe(name: str) -> dict[str, Any]:
        return {
            "use_bias": False,
            "kernel_initializer": he_normal(config.seed, f"{name}/kernel"),
            "data_format": form.keras_format,
            "name": name,
            "dtype": policy,
        }

    def convolve(channels: int, size: int, name: str, strides: int = 1) -> keras.layers.Layer:
        options = describe(name)
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
        layers += [ScaleRectify(maximum=form.native, even=even, name="stem_scale", **shared)]
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
        last = number == len(config.layers)
        joined = form.native and not config.dropout and not last
        scale = ScaleRectify(deferred=joined, name=f"scale{number}", **shared)
        layers.append(scale)
        # The paper convolves, then averages. Both are linear; one mixes channels, the other pixels. So they commute if
        # nothing is between them. Averaging first needs a quarter of the work and of the memory.
        name, pool = f"transition{number}", Pool("average", 2, form, name=f"pool{number}", dtype=policy)
        if joined:
            layers.append(NativeTransition(channels[number], 1, read_scale=scale.read, **describe(name)))
        elif not last and config.dropout:
            place = len(config.layers) + number
            dropout = StatelessDropout(config.dropout, seed, place, form, name=f"dropout{number}", dtype=policy)
            layers += [convolve(channels[number], 1, name), dropout, pool]
        elif not last:
            layers += [pool, convolve(channels[number], 1, name)]
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
