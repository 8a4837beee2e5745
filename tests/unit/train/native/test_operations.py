import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.train.blocks import make_layers, settle
from tests.unit.train.native import references
from tests.unit.train.references import measure
from train.model.block import dense_block, dense_block_inference
from train.model.formulation import FOR_CPU, FOR_NATIVE, Formulation
from train.model.normalization import Statistics
from train.model.randomness import NONE, Dropout
from train.native import operations

BOUND = 2e-6
"""Largest relative error of a result or a gradient."""
BLOCK_BOUND = 7e-6
"""The same for a block of up to six layers: 2e-6 to 4e-6 were measured, with stock kernels 8e-6 to 18e-6."""


class Operation(NamedTuple):
    run: Callable[..., tf.Tensor]
    reference: Callable[..., Any]
    gradient: Callable[..., list[Any]]
    shape: Callable[[int, int, int, int, int], list[tuple[int, ...]]]


def make_convolution(size: int) -> Operation:
    return Operation(
        operations.convolve,
        references.convolve,
        references.convolve_gradient,
        lambda n, c, h, w, d: [(n, c, h, w), (size, size, c, d)],
    )


OPERATIONS = {
    "1x1": make_convolution(1),
    "3x3": make_convolution(3),
    "4x4": make_convolution(4),
    "5x5": make_convolution(5),
    "scale_rectify": Operation(
        operations.scale_rectify,
        references.scale_rectify,
        references.scale_rectify_gradient,
        lambda n, c, h, w, _: [(n, c, h, w), (c,), (c,)],
    ),
    "rectify_average": Operation(
        functools.partial(operations.scale_rectify, pooling="average"),
        references.rectify_average,
        references.rectify_average_gradient,
        lambda n, c, h, w, _: [(n, c, h + 1, w + 1), (c,), (c,)],
    ),
    "rectify_maximum": Operation(
        functools.partial(operations.scale_rectify, pooling="maximum"),
        references.rectify_maximum,
        references.rectify_maximum_gradient,
        lambda n, c, h, w, _: [(n, c, h, w), (c,), (c,)],
    ),
    "average_pixels": Operation(
        operations.average_pixels,
        references.average_pixels,
        references.average_pixels_gradient,
        lambda n, c, h, w, _: [(n, c, h, w)],
    ),
    "dense": Operation(
        operations.apply_dense,
        references.apply_dense,
        references.apply_dense_gradient,
        lambda n, c, h, w, d: [(n, c * h), (c * h, d), (d,)],
    ),
}


def draw(shapes: Sequence[Sequence[int]], seed: int = 0) -> list[Any]:
    numbers = np.random.default_rng(seed)
    return [numbers.normal(size=shape).astype(np.float32) for shape in shapes]


def differentiate(run: Callable[..., tf.Tensor], inputs: Sequence[Any], upstream: Any = None) -> list[Any]:
    with tf.GradientTape() as tape:
        tensors = [tf.constant(value) for value in inputs]
        tape.watch(tensors)
        y = run(*tensors)
    upstream = draw([y.shape], seed=1)[0].astype(y.dtype.as_numpy_dtype) if upstream is None else upstream
    return [y.numpy(), *(part.numpy() for part in tape.gradient(y, tensors, tf.constant(upstream)))]


def measure_terms(found: Any, expected: Any) -> float:
    """Return the norm of the difference relative to that of the terms, about 1: a sum that cancels is less exact."""
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 0.1 * math.sqrt(expected.size)))


@settings(max_examples=25)
@given(n=st.integers(1, 5), c=st.integers(1, 20), h=st.integers(1, 9), w=st.integers(1, 9), d=st.integers(1, 20))
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_shape(name: str, n: int, c: int, h: int, w: int, d: int) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shape(n, c, h, w, d))
    y, *gradients = differentiate(operation.run, inputs)
    exact = [value.astype(np.float64) for value in inputs]
    upstream = draw([y.shape], seed=1)[0].astype(np.float64)
    expected = [operation.reference(*exact), *operation.gradient(upstream, *exact)]
    for found, value in zip([y, *gradients], expected, strict=True):
        assert found.shape == value.shape
        assert measure_terms(found, value) < BOUND


@pytest.mark.parametrize("shape", [(2, 130, 40, 33, 70), (40, 3, 32, 32, 24)], ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_large_shapes(name: str, shape: tuple[int, int, int, int, int]) -> None:
    operation = OPERATIONS[name]
    inputs = draw(operation.shape(*shape))
    y, *gradients = differentiate(operation.run, inputs)
    exact = [value.astype(np.float64) for value in inputs]
    expected = [operation.reference(*exact), *operation.gradient(draw([y.shape], seed=1)[0].astype(np.float64), *exact)]
    assert max(map(measure, [y, *gradients], expected)) < BOUND


@settings(max_examples=25)
@given(n=st.integers(1, 3), h=st.integers(1, 20), w=st.integers(1, 20), size=st.sampled_from([3, 7]))
def test_a_convolution_with_stride_2(n: int, h: int, w: int, size: int) -> None:
    x, kernel = draw([(n, 3, h, w), (size, size, 3, 5)])
    found = differentiate(lambda kernel: operations.convolve_by_two(x, kernel), [kernel])
    upstream = draw([found[0].shape], seed=1)[0].astype(np.float64).transpose(0, 2, 3, 1)
    exact, kernel = x.astype(np.float64).transpose(0, 2, 3, 1), tf.constant(kernel, tf.float64)
    with tf.GradientTape() as tape:
        tape.watch(kernel)
        y = tf.nn.conv2d(exact, kernel, 2, "SAME")
    gradient = tape.gradient(y, kernel, tf.constant(upstream))
    assert measure_terms(found[0], y.numpy().transpose(0, 3, 1, 2)) < BOUND
    assert measure_terms(found[1], gradient.numpy()) < BOUND


@settings(max_examples=25)
@given(n=st.integers(1, 9), c=st.integers(1, 100), scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4]))
def test_the_loss(n: int, c: int, scale: float) -> None:
    (logits,) = draw([(n, c)])
    logits *= scale
    labels = np.random.default_rng(2).integers(0, c, n).astype(np.int32)
    exact = logits.astype(np.float64)
    for targets in (np.eye(c, dtype="f")[labels], np.random.default_rng(3).random((n, c), "f") + np.float32(0.01)):
        loss, gradient = differentiate(lambda x, t=targets: operations.measure_loss(t, x), [logits], np.float32(1))
        np.testing.assert_allclose(loss, references.measure_loss(exact, targets), rtol=BOUND, atol=1e-12)
        expected = references.measure_loss_gradient(exact, targets)
        np.testing.assert_allclose(gradient, expected, rtol=BOUND, atol=1e-6 * np.abs(targets).max())


@given(base=st.floats(0, 1, width=32), exponent=st.integers(0, 10**6))
def test_powers(base: float, exponent: int) -> None:
    found = float(operations.raise_to(base, tf.constant(exponent)))
    assert found == pytest.approx(base**exponent, rel=1e-7, abs=1e-37)


@settings(max_examples=20)
@given(
    n=st.integers(1, 5),
    first=st.integers(2, 20),  # `settle` rectifies the first channel to 0, and one channel would leave nothing
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    count=st.integers(0, 3),
    growth=st.integers(1, 17),
)
def test_every_block(n: int, first: int, size: tuple[int, int], count: int, growth: int) -> None:
    if n * size[0] * size[1] < 12:
        n = 12  # a norm over fewer values leaves little but rounding
    errors = compare_blocks((n, *size, first), count, growth)
    if max(errors.values()) < BLOCK_BOUND:
        return
    # With few channels, norms leave so little freedom that gradients are 0 but for rounding, divided by small numbers.
    stock = compare_blocks((n, *size, first), count, growth, FOR_CPU)
    assert all(errors[name] < max(BLOCK_BOUND, 4 * stock[name]) for name in errors), (errors, stock)


def test_a_block_as_in_the_network() -> None:
    errors = compare_blocks((16, 16, 16, 24), 6, 12)
    assert max(errors.values()) < BLOCK_BOUND, errors
    assert errors["maps"] < BOUND


class MaskedByNativeKernels(Dropout):
    def apply(self, x: tf.Tensor, form: Formulation) -> tf.Tensor:
        assert not form.channels_first
        ones = tf.ones(tf.TensorShape(x.shape[i] for i in (0, 3, 1, 2)))
        mask = operations.drop(ones, self.rate, self.numbers)
        return x * tf.cast(tf.transpose(mask, [0, 2, 3, 1]), x.dtype)


@pytest.mark.parametrize("shape", [(5, 8, 8, 6), (6, 5, 7, 3)], ids=["whole tiles", "split tiles"])
def test_a_block_with_dropout(shape: tuple[int, int, int, int]) -> None:
    errors = compare_blocks(shape, 3, 4, rate=0.25)
    assert max(errors.values()) < BLOCK_BOUND, errors


def test_dropout_keeps_its_share_and_depends_on_every_number() -> None:
    ones = tf.ones((20, 30, 16, 16))
    kept = operations.drop(ones, 0.25, [1, 2, 3]).numpy()
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    share = (kept > 0).mean(axis=(2, 3))
    assert kept.mean() == pytest.approx(1.0, abs=0.01)
    assert np.abs(share - 0.75).max() < 0.15, "each map keeps its share"
    assert share.std() == pytest.approx(np.sqrt(0.25 * 0.75 / 256), rel=0.15), "as independent draws would vary"
    flat = (kept > 0).reshape(600, 256)
    agreement = np.corrcoef(flat)[np.triu_indices(600, 1)]
    assert np.abs(agreement).max() < 0.4, "no two maps have the same mask"
    for other in ([0, 2, 3], [1, 0, 3], [1, 2, 0], [1, 2]):
        assert 0.3 < (operations.drop(ones, 0.25, other).numpy() != kept).mean() < 0.45
    dy = operations.drop(ones, 0.25, [1, 2, 3])
    found = differentiate(lambda x: operations.drop(x, 0.25, [1, 2, 3]), [ones.numpy()], ones.numpy())
    assert np.array_equal(found[-1], dy.numpy())
    assert np.array_equal(operations.drop(ones, 0.0, [1]).numpy(), ones.numpy())


def test_squares_are_averaged() -> None:
    (x,) = draw([(2, 3, 7, 5)])
    expected = x[:, :, :6, :4].reshape(2, 3, 3, 2, 2, 2).mean(axis=(3, 5))
    (dy,) = draw([(2, 3, 3, 2)])
    y, dx = differentiate(operations.average_squares, [x], dy)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)
    spread = np.zeros_like(x)
    spread[:, :, :6, :4] = (dy / 4).repeat(2, axis=2).repeat(2, axis=3)
    assert np.array_equal(dx, spread)


def compare_blocks(
    shape: tuple[int, int, int, int],
    count: int,
    growth: int,
    form: Formulation = FOR_NATIVE,
    dtype_of_maps: str = "float32",
    rate: float = 0.0,
) -> dict[str, float]:
    layers = settle(make_layers(count=count, growth=growth, channels=shape[-1], dtype="float32"), "float32")
    numbers = np.random.default_rng(5)
    x = (numbers.normal(size=shape) * numbers.uniform(0.5, 2, shape[-1]) + numbers.normal(size=shape[-1])).astype("f")
    weight = numbers.normal(size=(*shape[:3], shape[3] + count * growth)).astype("f")
    results = []
    for tried, dtype in ((form, "float32"), (FOR_CPU, "float64")):
        kind = Dropout if tried.native else MaskedByNativeKernels
        dropout = kind(rate, tf.constant([3, 7]), native=True) if rate else NONE
        units = [[type(unit)(*(tf.cast(part, dtype) for part in unit)) for unit in layer] for layer in layers]
        weights = [part for layer in units for unit in layer for part in unit]
        of_maps = dtype_of_maps if dtype == "float32" else dtype
        inputs, upstream = (tf.cast(tf.cast(value, dtype_of_maps), of_maps) for value in (x, weight))
        if tried.channels_first:
            inputs, upstream = (tf.transpose(value, [0, 3, 1, 2]) for value in (inputs, upstream))
        with tf.GradientTape() as tape:
            tape.watch([inputs, *weights])
            block = dense_block(inputs, units, "plain" if dtype == "float64" else "shared", tried, dropout=dropout)
        d_x, *gradients = tape.gradient(block.maps, [inputs, *weights], upstream)
        # Scale and shift of a unit together: if the next norm removes a shift, the gradient of the shift is 0.
        parts = [gradients[start : start + 3] for start in range(0, len(gradients), 3)]
        joined = [part for gamma, beta, kernel in parts for part in (tf.concat([gamma, beta], 0), kernel)]
        features = Statistics(*(tf.concat(pieces, 0) for pieces in zip(*block.features, strict=True)))
        inferred = dense_block_inference(inputs, units, features, block.inner, tried)
        maps = [block.maps, d_x, inferred]
        if tried.channels_first:
            maps = [tf.transpose(value, [0, 2, 3, 1]) for value in maps]
        maps = [tf.cast(value, dtype) for value in maps]
        statistics = [*features, *(part for each in block.inner for part in each)]
        results.append({"maps": maps, "statistics": statistics, "gradients": joined})
    found, expected = results
    return {
        name: max(
            [0, *(measure_terms(one, other.numpy()) for one, other in zip(found[name], expected[name], strict=True))]
        )
        for name in found
    }


def run_everything() -> list[Any]:
    found = []
    for operation in OPERATIONS.values():
        found += differentiate(operation.run, draw(operation.shape(5, 19, 11, 9, 14)))
    (logits,) = draw([(7, 5)])
    found += differentiate(
        lambda x: operations.measure_loss(tf.one_hot(tf.range(7) % 5, 5), x), [logits], np.float32(1)
    )
    layers = make_layers(count=3, growth=5, channels=7, dtype="float32")
    weights = [part.numpy() for layer in layers for unit in layer for part in unit]
    (x,) = draw([(40, 7, 9, 11)])
    found += differentiate(lambda x, *weights: operations.run_block(x, weights).maps, [x, *weights])
    statistics = operations.run_block(tf.constant(x), list(map(tf.constant, weights)))[1:]
    return [*found, *statistics, operations.infer_block(tf.constant(x), list(map(tf.constant, weights)), statistics)]


def test_bits_do_not_depend_on_threads_or_instructions(kernels: ctypes.CDLL) -> None:
    expected = [np.asarray(value).tobytes() for value in run_everything()]
    tried = []
    for instructions in (b"avx2", b"avx512", b"amx"):
        for threads in (1, 2, 3, 7):
            if kernels.toolkit_choose(instructions):
                operations.set_threads(threads)
                tried.append((instructions, threads))
                assert [np.asarray(value).tobytes() for value in run_everything()] == expected, tried[-1]
    assert len(tried) >= 4


def test_an_unknown_instruction_set_is_refused(kernels: ctypes.CDLL) -> None:
    before = kernels.toolkit_instructions()
    assert not kernels.toolkit_choose(b"sse")
    assert kernels.toolkit_instructions() == before


def test_what_is_no_number_passes_through() -> None:
    (x,) = draw([(2, 3, 4, 4)])
    x[0, 1, 2, 3], x[1, 2, 0, 0], x[1, 2, 0, 1] = np.nan, np.inf, -np.inf
    ones = np.ones(3, np.float32)
    y = operations.scale_rectify(tf.constant(x), ones, 0 * ones).numpy()
    np.testing.assert_array_equal(y, np.where(x < 0, 0, x))
    y = operations.scale_rectify(tf.constant(x), ones, 0 * ones, pooling="average").numpy()
    assert (np.isnan(y).sum(), np.isinf(y).sum()) == (1, 1)
    y = operations.scale_rectify(tf.constant(x), ones, 0 * ones, pooling="maximum").numpy()
    assert np.isnan(y[0, 1]).sum() == 2, "two windows hold that pixel"
    assert np.isinf(y).sum() == 1
    assert np.isnan(operations.average_pixels(tf.constant(x)).numpy()).sum() == 2  # inf - inf is no number
    kernel = draw([(3, 3, 3, 2)])[0]
    y = operations.convolve(tf.constant(x[:1]), kernel).numpy()
    assert np.isnan(y[0, :, 1:4, 2:4]).all()
    assert np.isnan(y).sum() == 2 * 6
    logits = np.array([[0, np.nan], [1, 2]], np.float32)
    assert np.isnan(operations.measure_loss(tf.eye(2), tf.constant(logits)).numpy())
    layers = make_layers(count=2, growth=2, channels=3, dtype="float32")
    weights = [part for layer in layers for unit in layer for part in unit]
    block = operations.run_block(tf.constant(x), weights)
    assert np.isnan(block.maps.numpy()[:, 1:]).all(), "a norm spreads it over the channel, a convolution over channels"
    assert np.isfinite(block.maps.numpy()[:, 0]).all()


def wrong_block(**changes: Any) -> Callable[[], Any]:
    def run() -> Any:
        layers = make_layers(count=2, growth=2, channels=3, dtype="float32")
        weights = [part for layer in layers for unit in layer for part in unit]
        for place, shape in changes.get("weights", {}).items():
            weights[place] = tf.zeros(shape)
        return operations.load().toolkit_block(
            x=tf.zeros(changes.get("x", (2, 3, 4, 4))), rate=0.0, seed=[0], weights=weights[: changes.get("count")]
        )

    return run


def wrong_gradient(count: int | None = None, **changes: tuple[int, ...]) -> Callable[[], Any]:
    """Call the gradient of a block with 2 layers, where one input has another shape, or there are fewer weights."""
    shapes = {
        "upstream": (2, 7, 4, 4),
        "maps": (2, 7, 4, 4),
        "between": (2, 2, 8, 4, 4),
        "scale": (7,),
        "inner_mean": (2, 8),
        "inner_variance": (2, 8),
        "inner_scale": (2, 8),
    }

    def run() -> Any:
        layers = make_layers(count=2, growth=2, channels=3, dtype="float32")
        weights = [part for layer in layers for unit in layer for part in unit]
        inputs = {name: tf.ones(shape) for name, shape in (shapes | changes).items()}
        return operations.load().toolkit_block_gradient(rate=0.0, seed=[0], weights=weights[:count], **inputs)

    return run


def call(name: str, **inputs: Any) -> Callable[[], Any]:
    return lambda: getattr(operations.load(), f"toolkit_{name}")(**inputs)


MAPS, ONES = np.ones((2, 3, 4, 4), np.float32), np.ones(3, np.float32)
WRONG = {
    "rank": (call("average_pixels", x=MAPS[0]), "input 0 has rank 3, not 4"),
    "empty": (call("average_pixels", x=MAPS[:0]), "input 0 is empty: axis 0"),
    "one column": (call("scale_rectify_average", x=MAPS[..., :1], gamma=ONES, beta=ONES), "size of 0"),
    "gradient of one column": (
        call("scale_rectify_average_gradient", dy=MAPS[..., :1], x=MAPS[..., :1], gamma=ONES, beta=ONES),
        "one row or column",
    ),
    "channels": (call("convolution", x=MAPS, kernel=np.ones((3, 3, 4, 2), "f")), "size 4 on axis 2, not 3"),
    "great kernel": (call("convolution", x=MAPS, kernel=np.ones((17, 17, 3, 2), "f")), "at most 15, not 17"),
    "oblong kernel": (call("convolution", x=MAPS, kernel=np.ones((3, 1, 3, 2), "f")), "size 1 on axis 1, not 3"),
    "upstream": (
        call("convolution_gradient", dy=MAPS, x=MAPS, kernel=np.ones((3, 3, 3, 2), "f")),
        "size 2 on axis 3, not 3",
    ),
    "gamma": (call("scale_rectify", x=MAPS, gamma=np.ones(4, "f"), beta=np.ones(3, "f")), "input 1 has size 4"),
    "squares": (
        call("scale_rectify_average_gradient", dy=MAPS, x=MAPS, gamma=ONES, beta=ONES),
        "input 0 has size 4 on axis 2, not 2",
    ),
    "sizes": (call("average_pixels_gradient", dy=MAPS[..., 0, 0], size=[2, 2, 2]), "input 1 has size 3 on axis 0"),
    "no size": (call("average_pixels_gradient", dy=MAPS[..., 0, 0], size=[0, 4]), "size of 0"),
    "huge": (call("average_pixels_gradient", dy=MAPS[..., 0, 0], size=[2**31 - 1, 2**31 - 1]), "too many elements"),
    "no target": (call("cross_entropy", logits=ONES[None], targets=0 * ONES[None]), "image 0 has no target"),
    "negative target": (
        call("cross_entropy", logits=np.eye(3), targets=[[1.0, 0, 0], [2, 0, -1], [0, 0, 1]]),
        "image 1",
    ),
    "targets": (call("cross_entropy", logits=ONES[None], targets=np.ones((2, 3), "f")), "input 1 has size 2"),
    "share": (call("dropout", x=MAPS, rate=1.0, seed=[0]), "the share to drop must lie in"),
    "momentum": (
        call("momentum", weight=[1.0], velocity=[1.0, 2.0], gradient=[1.0], rate=1.0, momentum=1.0, decay=1.0),
        "input 1 has size 2",
    ),
    "weights": (wrong_block(count=11), "a block with 11 weights"),
    "first kernel": (wrong_block(weights={2: (1, 1, 4, 8)}), "input 5 has size 4 on axis 2, not 3"),
    "second kernel": (wrong_block(weights={5: (3, 3, 7, 2)}), "input 8 has size 7 on axis 2, not 8"),
    "second layer": (wrong_block(weights={6: (4,)}), "input 9 has size 4 on axis 0, not 5"),
    "wide layer": (
        wrong_block(count=6, weights={2: (1, 1, 3, 4097), 3: (4097,), 4: (4097,), 5: (3, 3, 4097, 2)}),
        "too wide: 4097, then 2 channels",
    ),
    "x": (wrong_block(x=(2, 4, 4, 4)), "not 4"),
    "maps": (wrong_gradient(maps=(2, 8, 4, 4)), "input 1 has size 8 on axis 1, not 7"),
    "fewer maps": (wrong_gradient(maps=(2, 6, 4, 4), upstream=(2, 6, 4, 4), scale=(6,)), "do not make the block's"),
    "between": (wrong_gradient(between=(3, 2, 8, 4, 4)), "size 3 on axis 0, not 2"),
    "results of layers that are not there": (wrong_gradient(count=0), "results of 2 layers, and weights of 0"),
    "scale": (wrong_gradient(scale=(6,)), "input 3 has size 6"),
    "statistics": (wrong_gradient(inner_scale=(2, 7)), "input 6 has size 7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape_or_value_is_refused(name: str) -> None:
    run, message = WRONG[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run()


def test_a_wrong_type_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="double"):
        operations.load().toolkit_average_pixels(x=tf.constant(MAPS, tf.float64))


def test_the_gradient_of_images_is_left_out() -> None:
    x, kernel = draw([(2, 3, 5, 5), (3, 3, 3, 4)])
    with tf.GradientTape() as tape:
        tensors = [tf.constant(x), tf.constant(kernel)]
        tape.watch(tensors)
        y = operations.convolve(*tensors, first=True)
    d_x, d_kernel = tape.gradient(y, tensors)
    assert d_x is None
    expected = references.convolve_gradient(np.ones(y.shape), *(part.astype(np.float64) for part in (x, kernel)))[1]
    assert measure(d_kernel.numpy(), expected) < BOUND
