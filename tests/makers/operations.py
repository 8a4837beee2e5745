import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tests.unit.train.native import references
from train.native import operations


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
    "transition": Operation(
        operations.run_transition,
        references.run_transition,
        references.run_transition_gradient,
        lambda n, c, h, w, d: [(n, c, h + 1, w + 1), (c,), (c,), (1, 1, c, d)],
    ),
    "rectify_maximum": Operation(
        functools.partial(operations.scale_rectify, maximum=True),
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
