"""Prints how fast each layer runs with native kernels, beside what the processor can reach: a roofline by layer.

    python -m benchmarks.training.roofline --batch 64

Each round multiplies large matrices, makes a whole step of training, and then runs each layer alone: forward, and
forward with backward. The backward time is the difference of the two medians. A layer alone has to copy the gradient
that it is given, in whose memory it computes in a step.

Products of the shapes that a network has are slower than those of large matrices. So each round also runs the
convolutions of the blocks and transitions by TensorFlow, alone: forward and both gradients, with nothing between them.

The operations are those of convolutions and products. The bytes are those that the algorithm passes over if no cache
holds them. A dense layer reads the maps before it, writes and reads those between its convolutions, and writes its own.
The backward pass reads all of these, and reads and writes their gradients. (Williams, Waterman and Patterson,
"Roofline", CACM 2009.)
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np

COPIED: Final = 2**28
"""Bytes of one array in the measurement of the memory's speed: more than any cache holds."""
SIDE: Final = 2048
"""Rows and columns of the matrices that are multiplied."""


class Work(NamedTuple):
    operations: float
    bytes: float


def count_block(layer: Any, maps: int, pixels: int, width: int) -> tuple[Work, Work]:
    """Count a dense block forward and backward; `pixels` are those of a batch, `width` the bytes of a value."""
    forward = backward = moved = returned = 0.0
    for index in range(layer.count):
        before, inner, new = maps + index * layer.growth, 4 * layer.growth, layer.growth
        once = 2 * pixels * (before * inner + 9 * inner * new)
        forward, backward = forward + once, backward + 2 * once
        moved += before + 2 * inner + new
        returned += 3 * before + 4 * inner + 2 * new
    return Work(forward, moved * pixels * width), Work(backward, returned * pixels * width)


def count(layer: Any, x: Any, y: Any) -> tuple[Work, Work]:
    sizes, width = x.shape, x.dtype.size
    ends = int(np.prod(sizes)) * width, int(np.prod(y.shape)) * y.dtype.size
    passed = Work(0.0, sum(ends)), Work(0.0, 2 * sum(ends))
    kind = type(layer).__name__
    if kind == "DenseBlock":
        return count_block(layer, sizes[1], sizes[0] * sizes[2] * sizes[3], width)
    if kind in {"NativeConvolution", "NativeDense", "NativeTransition"}:
        pixels = int(np.prod(y.shape)) // y.shape[1]
        once = 2.0 * pixels * int(np.prod(layer.kernel.shape))
        first = getattr(layer, "first", False)
        return Work(once, sum(ends)), Work(once * (1 if first else 2), 2 * sum(ends))
    return passed


def measure_copy(threads: int) -> float:
    """Return how many bytes a second the threads copy, counting those read and those written."""
    sources = [np.ones(COPIED // threads, np.uint8) for _ in range(threads)]
    targets = [np.empty_like(source) for source in sources]
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(7):
            began = time.perf_counter()
            list(pool.map(np.copyto, targets, sources))
            seconds.append(time.perf_counter() - began)
    return 2 * COPIED / statistics.median(seconds)


def make_runs(layer: Any, x: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import tensorflow as tf

    options = {"training": True} if type(layer).__name__ == "DenseBlock" else {}
    dy = tf.ones_like(layer(x, **options))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def forward(x: tf.Tensor) -> tf.Tensor:
        return layer(x, **options)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def both(x: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, **options)
        sources = [variable.value for variable in layer.trainable_variables]
        wanted = sources if getattr(layer, "first", False) else [x, *sources]
        gradients: list[tf.Tensor] = tape.gradient(y, wanted, dy)
        return [y, *gradients]  # TensorFlow would leave out a forward pass whose result nobody has

    return lambda: forward(x), lambda: both(x, dy)


class Shape(NamedTuple):
    """The shape of a convolution, whose results are as many as its maps have pixels."""

    size: int  # rows and columns of the kernel
    inputs: int
    outputs: int
    pixels: tuple[int, int, int]  # images, rows, columns

    @property
    def operations(self) -> float:
        """Those of the convolution and of its two gradients."""
        return 6.0 * self.size**2 * self.inputs * self.outputs * int(np.prod(self.pixels))


def list_shapes(layer: Any, x: Any, y: Any) -> list[Shape]:
    """Return the shapes of the convolutions of a block or a transition; none for another layer."""
    pixels = (y.shape[0], *y.shape[2:])
    kind = type(layer).__name__
    if kind == "NativeTransition":
        return [Shape(1, x.shape[1], y.shape[1], pixels)]
    if kind != "DenseBlock":
        return []
    inner, new = 4 * layer.growth, layer.growth
    pairs = [(Shape(1, x.shape[1] + i * new, inner, pixels), Shape(3, inner, new, pixels)) for i in range(layer.count)]
    return [shape for pair in pairs for shape in pair]


def make_convolution(shape: Shape) -> Callable[[], Any]:
    """Return a function that runs a convolution and its gradients by TensorFlow, in its fastest form for processors."""
    import tensorflow as tf

    from train.model.block import convolve, convolve_gradient
    from train.model.formulation import FOR_CPU

    sizes = ((*shape.pixels, shape.inputs), (shape.size, shape.size, shape.inputs, shape.outputs))
    x, kernel = (tf.random.stateless_normal(size, (1, 2)) for size in sizes)
    dy = tf.ones((*shape.pixels, shape.outputs))

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run() -> list[tf.Tensor]:
        return [convolve(x, kernel, FOR_CPU), *convolve_gradient(dy, x, kernel, FOR_CPU)]

    return run  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="bc-100-12")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    from benchmarks.training.peers import ours
    from train.step import runtime

    processor = runtime.prepare(options.threads, kernels="native")["devices"][0]
    import tensorflow as tf

    from train.config.resolution import resolve
    from train.model.densenet import list_layers
    from train.model.formulation import FOR_NATIVE
    from train.native import operations

    operations.set_threads(options.threads)
    config = resolve("cifar10", model=options.model, kernels="native", precision=options.precision)
    value = tf.random.stateless_normal((options.batch, *config.shape), (1, 2))
    stages: list[tuple[str, tuple[Work, Work], tuple[Callable[[], Any], Callable[[], Any]]]] = []
    shapes: list[Shape] = []
    for layer in list_layers(config, FOR_NATIVE):
        y = layer(value, training=True) if type(layer).__name__ == "DenseBlock" else layer(value)
        # A layer that returns what it is given only owns weights.
        if type(layer).__name__ != "Permute" and y is not value:
            value = tf.cast(value, layer.compute_dtype)
            stages.append((layer.name, count(layer, value, y), make_runs(layer, value)))
            shapes += list_shapes(layer, value, y)
        value = y
    square = tf.cast(tf.random.stateless_normal((SIDE, SIDE), (1, 2)), "float32")
    multiply = tf.function(lambda x: tf.reduce_max(tf.matmul(x, x)))
    convolutions = [make_convolution(shape) for shape in shapes]
    runs = {
        ("product", 0): lambda: multiply(square).numpy(),
        ("step", 0): ours.make({**vars(options), "kernels": "native"}).step,
        ("convolutions", 0): lambda: [run() for run in convolutions],
        **{(name, index): run for name, _, both in stages for index, run in enumerate(both)},
    }
    times: dict[tuple[str, int], list[float]] = {key: [] for key in runs}
    for number in range(options.rounds + 1):
        for key, run in runs.items():
            began = time.perf_counter()
            run()
            if number:
                times[key].append(time.perf_counter() - began)
    medians = {key: statistics.median(seconds) for key, seconds in times.items()}
    limit = sum(shape.operations for shape in shapes) / medians["convolutions", 0]
    peak, speed = 2 * SIDE**3 / medians["product", 0], measure_copy(options.threads)
    rates = {"product": peak / 1e9, "convolutions": limit / 1e9, "copy": speed / 1e9}
    print(json.dumps({**vars(options), "processor": processor, **rates}))
    for name, works, _ in stages:
        forward, both = (medians[name, index] for index in range(2))
        for direction, work, seconds in zip(("forward", "backward"), works, (forward, both - forward), strict=True):
            bound = max(work.operations / peak, work.bytes / speed)
            print(
                f"| {name} | {direction} | {1e3 * seconds:.1f} | {work.operations / seconds / 1e9:.0f} "
                f"| {100 * work.operations / seconds / peak:.0f} % | {work.bytes / seconds / 1e9:.0f} "
                f"| {100 * bound / seconds:.0f} % |"
            )
    computed = sum(work.operations for _, works, _ in stages for work in works)
    alone = sum(medians[name, 1] for name, _, _ in stages)
    for what, seconds in (("all layers alone", alone), ("a whole step", medians["step", 0])):
        print(
            f"{what}: {1e3 * seconds:.0f} ms, {options.batch / seconds:.1f} images/s, "
            f"{computed / seconds / 1e9:.0f} GFLOP/s, {100 * computed / seconds / peak:.0f} % of the product, "
            f"{100 * computed / seconds / limit:.0f} % of TensorFlow's convolutions of the same shapes alone"
        )


if __name__ == "__main__":
    main()
