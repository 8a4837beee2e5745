"""The maps of a dense block in two parts, so that one map more does not copy all the others.

A buffer that grows by a concatenation is copied whole for each layer, forward, and twice backward, which is O(depth²)
channels to move. Here new maps are gathered in a short part, which joins the long one every `GATHERED` layers. Scale,
shift and ReLU of the whole are those of its parts, and a convolution is the sum of the parts' convolutions, for it is
linear in its input channels. Parts for single layers would need a sum of as many products; two need one sum of one
narrow map.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import tensorflow as tf

GATHERED: Final = 2
"""Maps in the short part. From 2 to 6 the speed is the same, and 2 take least memory (``benchmarks/training``)."""

Parts = list[tf.Tensor]
"""Maps (batch, height, width, channels): the long part, and behind it the short one, where there is one."""


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Where the maps of a block lie.

    Attributes:
        first: channels that the block starts from.
        growth: channels that each layer adds.
    """

    first: int
    growth: int

    def measure(self, layers: int) -> list[int]:
        """Channels of each part when so many layers have added their maps."""
        if layers == 0:
            return [self.first]
        recent = (layers - 1) % GATHERED + 1
        return [self.first + (layers - recent) * self.growth, recent * self.growth]

    def split(self, maps: tf.Tensor, layers: int) -> Parts:
        """All maps, from one buffer into parts."""
        return list(tf.split(maps, self.measure(layers), axis=-1)) if layers else [maps]

    def append(self, parts: Parts, made: tf.Tensor, layers: int) -> Parts:
        """Add what a layer made to the maps of the so many layers before it."""
        if layers % GATHERED == 0:
            return [join(parts), made]
        long, recent = parts
        return [long, join([recent, made])]

    def take_last(self, parts: Parts, layers: int) -> tuple[Parts, tf.Tensor]:
        """The reverse: the parts as they were when so many layers had run, and the map of the next one."""
        long, recent = parts
        if layers % GATHERED == 0:
            return self.split(long, layers), recent
        recent, last = tf.split(recent, [recent.shape[-1] - self.growth, self.growth], axis=-1)
        return [long, recent], last


def join(parts: Sequence[tf.Tensor], axis: int = -1) -> tf.Tensor:
    """Parts as one tensor."""
    return tf.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
