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
    "empty": (call("average_pixels", x=MAPS[:0]), "input 0 is empty: axis 0"),
    "one column": (
        call("transition", x=MAPS[..., :1], gamma=ONES, beta=ONES, kernel=np.ones((1, 1, 3, 2), "f")),
        "size of 0",
    ),
    "channels": (call("convolution", x=MAPS, kernel=np.ones((3, 3, 4, 2), "f")), "size 4 on axis 2, not 3"),
    "gamma": (call("scale_rectify", x=MAPS, gamma=np.ones(4, "f"), beta=np.ones(3, "f")), "input 1 has size 4"),
    "sizes": (call("average_pixels_gradient", dy=MAPS[..., 0, 0], size=[2, 2, 2]), "input 1 has size 3 on axis 0"),
    "huge": (call("average_pixels_gradient", dy=MAPS[..., 0, 0], size=[2**31 - 1, 2**31 - 1]), "too many elements"),
    "no target": (call("cross_entropy", logits=ONES[None], targets=0 * ONES[None]), "image 0 has no target"),
    "share": (call("dropout", x=MAPS, rate=1.0, seed=[0]), "the share to drop must lie in"),
    "momentum": (
        call("momentum", weight=[1.0], velocity=[1.0, 2.0], gradient=[1.0], rate=1.0, momentum=1.0, decay=1.0),
        "input 1 has size 2",
    ),
    "weights": (wrong_block(count=11), "a block with 11 weights"),
    "second kernel": (wrong_block(weights={5: (3, 3, 7, 2)}), "input 8 has size 7 on axis 2, not 8"),
    "wide layer": (
        wrong_block(count=6, weights={2: (1, 1, 3, 4097), 3: (4097,), 4: (4097,), 5: (3, 3, 4097, 2)}),
        "too wide: 4097, then 2 channels",
    ),
    "x": (wrong_block(x=(2, 4, 4, 4)), "not 4"),
    "maps": (wrong_gradient(maps=(2, 8, 4, 4)), "input 1 has size 8 on axis 1, not 7"),
    "results of layers that are not there": (wrong_gradient(count=0), "results of 2 layers, and weights of 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_shape_or_value_is_refused(name: str) -> None:
    run, message = WRONG[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run()
