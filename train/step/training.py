"""Makes the training step: loss, gradients, and the change of the weights, as a graph."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.config.configuration import TrainConfig
from train.model import formulation
from train.model.densenet import build, dropout_seed
from train.model.formulation import Formulation
from train.native import operations
from train.step import evaluation, optimizer, packing
from train.step.optimizer import Rule
from train.step.state import State, create

INITIAL_SCALE: Final = 2.0**15
GROWTH_INTERVAL: Final = 2000
"""Steps without overflow after which the loss scale doubles (Micikevicius et al., arXiv 1710.03740)."""


class Outcome(NamedTuple):
    """Mean loss of a batch without weight penalty, number of correct answers, and whether the gradients are finite."""

    loss: tf.Tensor
    correct: tf.Tensor
    finite: tf.Tensor

    def read(self) -> tuple[float, int]:
        return float(self.loss), int(self.correct)


@dataclass(frozen=True)
class PackedOutcome:
    """An `Outcome` as one tensor (3,), so that it comes to the host in one copy."""

    parts: tf.Tensor

    def read(self) -> tuple[float, int]:
        loss, correct, _ = self.parts.numpy()
        return float(loss), int(correct)


TrainStep = Callable[[Any, Any, Any], Any]
"""A function of images, labels and learning rate (arrays or tensors) to an `Outcome` or a `PackedOutcome`."""


def start(config: TrainConfig, form: Formulation | None = None) -> tuple[State, Rule]:
    model, rule = build(config, form), optimizer.choose(config)
    scale = INITIAL_SCALE if is_scaled(config) else 1.0
    return create(model, rule, initial_scale=scale, ema=config.ema, keeps_best=config.best), rule


def make_train_step(
    state: State,
    rule: Rule,
    config: TrainConfig,
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    *,
    form: Formulation | None = None,
    class_weights: Sequence[float] = (),
) -> TrainStep:
    """Return a function of images as bytes, labels or targets, and rate that runs a training step on the state.

    With mixed_float16, a step whose gradients overflow halves the scale of the loss and changes no weight and no slot.
    It still updates the running averages of the normalization, because they come from the forward pass.

    With accumulation, the batch is cut into parts, one after the other, and the gradient is the mean over parts. Each
    part is normalized by its own statistics, so the result is not that of the whole batch.
    """
    form = form or formulation.choose(config.kernels)
    weights, parts = [variable.value for variable in state.model.trainable_variables], config.accumulate
    apply = make_update(state, rule, config, form)
    differentiate = make_differentiate(state, config, mean, std, form=form, class_weights=class_weights)

    def step(images: tf.Tensor, labels: tf.Tensor, rate: tf.Tensor) -> Outcome:
        state.step.assign_add(1)
        number = state.step.read_value()
        if parts == 1:
            loss, correct, gradients = differentiate(images, labels, number)
        else:

            def run_part(images: tf.Tensor, labels: tf.Tensor, part: tf.Tensor) -> Gradients:
                return differentiate(images, labels, number * parts + tf.cast(part, tf.int64))

            loss, correct, gradients = accumulate(run_part, images, labels, parts, weights)
        finite = apply(gradients, rate)
        return Outcome(loss, correct, finite)

    return step


def make_differentiate(
    state: State,
    config: TrainConfig,
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    *,
    form: Formulation,
    class_weights: Sequence[float] = (),
) -> "Differentiate":
    """Return a function of images, labels and a number that seeds the dropout, int64 (), to `Gradients`."""
    model, seed, scaled = state.model, dropout_seed(state.model), is_scaled(config)
    # All kernels are cast in one call: a launch for each would be slow.
    kernels = _list_cast_kernels(model) if form.compile_updates and not config.jit else []
    dtype, measure_loss = keras.DTypePolicy(config.precision).compute_dtype, make_loss(config, form, class_weights)

    @tf.function(jit_compile=True, autograph=False)  # type: ignore[untyped-decorator]
    def cast_together(values: list[tf.Tensor]) -> list[tf.Tensor]:
        return [tf.cast(value, dtype) for value in values]

    def differentiate(images: tf.Tensor, labels: tf.Tensor, number: tf.Tensor) -> Gradients:
        if seed is not None:
            seed.assign(numbers := tf.stack([tf.constant(config.seed, tf.int64), number]))
            if form.lockstep:
                form.lockstep.local.seed = numbers
        scale = state.loss_scale.read_value()
        halves = cast_together([kernel.value for kernel in kernels]) if kernels else []
        with _replace(kernels, halves), tf.GradientTape() as tape:
            tape.watch(halves)
            logits = model(evaluation.normalize_images(images, mean, std, model.input.dtype, form), training=True)
            loss = measure_loss(labels, logits)
            target = loss * scale if scaled else loss
        used = {kernel.path: half for kernel, half in zip(kernels, halves, strict=True)}
        sources = [used.get(variable.path, variable.value) for variable in model.trainable_variables]
        return Gradients(loss, count_correct(labels, logits), tape.gradient(target, sources))

    return differentiate


Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""Returns the mean loss over images. Takes labels, int (images,), or targets, float (images, classes), and logits."""


def make_loss(config: TrainConfig, form: Formulation, weights: Sequence[float] = ()) -> Loss:
    """Return the loss of a training step. `weights` are factors of the classes' terms; none means 1 for each.

    Label smoothing gives each class the same part of every target (Szegedy et al., arXiv 1512.00567, section 7).
    """
    smoothing = config.label_smoothing
    direct = not (form.native or form.asynchronous or config.mixup or smoothing or weights)

    def measure(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        if direct:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        # Deterministic TensorFlow would gather the likelihoods, and the gradient of that operation sorts on a GPU.
        classes, dtype = logits.shape[-1], logits.dtype
        is_soft = labels.shape.rank == 2
        targets = tf.cast(labels, dtype) if is_soft else tf.one_hot(tf.cast(labels, tf.int64), classes, dtype=dtype)
        if smoothing:
            targets = targets * (1 - smoothing) + smoothing / classes
        if weights:
            targets *= tf.constant(weights, dtype)
        if form.native:
            return operations.measure_loss(targets, logits)
        return tf.reduce_mean(-tf.reduce_sum(targets * tf.nn.log_softmax(logits), axis=-1))

    return measure


def count_correct(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Return how many images have their label as the likeliest class; of targets, the one with the greatest share."""
    if labels.shape.rank == 2:
        labels = tf.argmax(labels, axis=-1)
    labels = tf.cast(labels, tf.int64)  # GPUs have no kernel that compares int32, so the host would do it
    return tf.reduce_sum(tf.cast(tf.argmax(logits, axis=-1) == labels, tf.int64))


def is_scaled(config: TrainConfig) -> bool:
    """Return whether the loss is scaled, so that gradients in half precision do not vanish."""
    return config.precision == "mixed_float16"


Update = Callable[[list[tf.Tensor], tf.Tensor], tf.Tensor]


def make_update(state: State, rule: Rule, config: TrainConfig, form: Formulation) -> Update:
    """Return a function that changes weights and slots by gradients and rate, and says whether these are finite."""
    scaled, weights = is_scaled(config), [variable.value for variable in state.model.trainable_variables]

    def update(gradients: list[tf.Tensor], rate: tf.Tensor) -> tf.Tensor:
        finite = tf.constant(True)
        gradients = [tf.cast(gradient, weight.dtype) for gradient, weight in zip(gradients, weights, strict=True)]
        if scaled:
            scale = state.loss_scale.read_value()
            gradients = [gradient / scale for gradient in gradients]
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])
            _adapt_scale(state, finite)
        if config.clip_norm:
            gradients = clip(gradients, config.clip_norm)

        def move() -> None:
            rate_, count = tf.cast(rate, weights[0].dtype), state.step - state.skipped
            for weight, gradient, slots in zip(weights, gradients, state.slots, strict=True):
                rule.update(weight, gradient, slots, rate_, count)

        if not scaled:
            move()
        elif form.compile_updates:
            # With tf.cond, the device would wait for the host to decide.
            variables = [*weights, *(slot for slots in state.slots for slot in slots)]
            before = [variable.read_value() for variable in variables]
            move()
            for variable, old in zip(variables, before, strict=True):
                variable.assign(tf.where(finite, variable.read_value(), old))
        else:
            tf.cond(finite, move, lambda: None)
        state.average()
        return finite

    if form.compile_updates and not config.jit:
        compiled: Update = tf.function(update, jit_compile=True, autograph=False)
        return compiled
    return update


class Gradients(NamedTuple):
    """Mean loss of a batch, number of correct answers, and the gradient of the loss for each weight."""

    loss: tf.Tensor
    correct: tf.Tensor
    gradients: list[tf.Tensor]


Differentiate = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Gradients]


def accumulate(
    differentiate: Differentiate,
    images: tf.Tensor,
    labels: tf.Tensor,
    parts: int,
    weights: Sequence[tf.Variable],
) -> Gradients:
    """Return the mean loss, the number of correct answers and the mean gradients of parts of a batch, run in turn."""
    size = images.shape[0] // parts
    dtype = weights[0].dtype

    def add(index: tf.Tensor, loss: tf.Tensor, correct: tf.Tensor, sums: list[tf.Tensor]) -> tuple[Any, ...]:
        rows = slice(index * size, (index + 1) * size)
        part = tf.ensure_shape(images[rows], [size, *images.shape[1:]])
        chosen = tf.ensure_shape(labels[rows], [size, *labels.shape[1:]])
        part_loss, right, gradients = differentiate(part, chosen, index)
        sums = [total + tf.cast(gradient, total.dtype) / parts for total, gradient in zip(sums, gradients, strict=True)]
        return index + 1, loss + tf.cast(part_loss, dtype) / parts, correct + right, sums

    start = (tf.constant(0), tf.zeros([], dtype), tf.zeros([], tf.int64), [tf.zeros_like(weight) for weight in weights])
    _, loss, correct, sums = tf.while_loop(lambda index, *_: index < parts, add, start, parallel_iterations=1)
    return Gradients(loss, correct, sums)


def clip(gradients: Sequence[tf.Tensor], norm: float) -> list[tf.Tensor]:
    """Scale gradients so that the norm of all of them is at most `norm` (Pascanu et al., arXiv 1211.5063).

    The squares are summed in pairs, pairs of pairs and so on, so that their order does not depend on the processor.
    """
    flat = tf.concat([tf.reshape(tf.cast(gradient, tf.float64), [-1]) for gradient in gradients], axis=0)
    count = flat.shape[0]
    squares = tf.pad(tf.square(flat), [[0, 2 ** math.ceil(math.log2(count)) - count]])
    while squares.shape[0] > 1:
        half = squares.shape[0] // 2
        squares = squares[:half] + squares[half:]
    factor = tf.minimum(tf.constant(1.0, tf.float64), norm / tf.sqrt(squares[0]))
    return [gradient * tf.cast(factor, gradient.dtype) for gradient in gradients]


def _list_cast_kernels(model: keras.Model) -> list[keras.Variable]:
    layers = [layer for layer in model.layers if layer.compute_dtype != layer.variable_dtype]
    return [variable for layer in layers for variable in layer.trainable_variables if len(variable.shape) == 4]


def _replace(variables: list[keras.Variable], values: list[tf.Tensor]) -> keras.StatelessScope:
    scope = keras.StatelessScope()
    for variable, value in zip(variables, values, strict=True):
        scope.add_update((variable, value))  # the constructor would cast the values back
    return scope


def _adapt_scale(state: State, finite: tf.Tensor) -> None:
    steady = tf.where(finite, state.steady + 1, 0)
    grow = steady >= GROWTH_INTERVAL
    factor = tf.where(finite, tf.where(grow, 2.0, 1.0), 0.5)
    state.loss_scale.assign(tf.clip_by_value(state.loss_scale * factor, 1.0, 2.0**24))
    state.steady.assign(tf.where(grow, tf.zeros_like(steady), steady))
    state.skipped.assign_add(tf.cast(~finite, state.skipped.dtype))


# Steps have no Python branches on tensors, so they need no AutoGraph. AutoGraph writes the source of every function to
# temporary files, which a killed process leaves behind.


def compile_train_step(
    step: TrainStep,
    config: TrainConfig,
    *,
    form: Formulation | None = None,
    resident: packing.Resident | None = None,
) -> TrainStep:
    """Return a step as a graph, compiled by XLA if asked to; for the eager loop, the step itself.

    With `resident` images, the step takes what ``Batches.choose`` returns.
    """
    form = form or formulation.choose(config.kernels)
    if config.loop == "eager":
        return step
    if config.loop == "fit" or not form.asynchronous:
        compiled: TrainStep = tf.function(step, jit_compile=config.jit, autograph=False)
        return compiled

    @tf.function(jit_compile=config.jit, autograph=False)  # type: ignore[untyped-decorator]
    def run(packed: tf.Tensor, batch: int) -> tf.Tensor:
        classes = config.classes if config.mixup else 0
        shape = (batch, *config.shape)
        tensors = resident.unpack(packed, batch) if resident else packing.unpack(packed, shape, classes)
        outcome = step(*tensors)
        return tf.stack([tf.cast(part, outcome.loss.dtype) for part in outcome])

    def run_packed(first: Any, second: Any, rate: Any) -> PackedOutcome:
        pack = packing.pack_choice if resident else packing.pack
        return PackedOutcome(run(tf.constant(pack(first, second, rate)), len(first)))

    return run_packed
