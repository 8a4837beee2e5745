"""Native operations refuse inputs of another shape, type or range."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.train.blocks import make_layers
from train.native import operations


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
        "between": (2, 512),
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
    "between": (wrong_gradient(between=(3, 512)), "size 3 on axis 0, not 2"),
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
