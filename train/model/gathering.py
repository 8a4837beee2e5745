"""The maps of a dense block in two parts, so that one map more does not copy all the others.

A buffer that grows by a concatenation is copied whole for each layer, forward, and twice backward, which is O(depth²)
channels to move. Here new maps are gathered in a short part, which joins the long one every so many layers. Scale,
shift and ReLU of the whole are those of its parts, and a convolution is the sum of the parts' convolutions, for it is
linear in its input channels. Parts for single layers would need a sum of as many products; two need one sum of one
narrow map.

On a GPU every operation on a second part is one launch more, and copies are cheap: there all maps lie in one part.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from train.model.formulation import Formulation

Parts = list[tf.Tensor]
"""Maps: the long part, and behind it the short one, where there is one."""


@dataclass(frozen=True, kw_only=True)
class Gathering:
    """Where the maps of a block lie.

    Attributes:
        first: channels that the block starts from.
        growth: channels that each layer adds.
        form: its `gathered` says how many layers the short part holds; 0 means that there is none.
    """

    first: int
    growth: int
    form: Formulation

    def measure(self, layers: int) -> list[int]:
        """Channels of each part when so many layers have added their maps."""
        recent = (layers - 1) % self.form.gathered + 1 if layers and self.form.gathered else 0
        parts = [self.first + (layers - recent) * self.growth, recent * self.growth]
        return parts if recent else parts[:1]

    def split(self, maps: tf.Tensor, layers: int) -> Parts:
        """All maps, from one buffer into parts."""
        parts = self.measure(layers)
        return list(tf.split(maps, parts, axis=self.form.axis)) if len(parts) > 1 else [maps]

    def append(self, parts: Parts, made: tf.Tensor, layers: int) -> Parts:
        """Add what a layer made to the maps of the so many layers before it."""
        axis = self.form.axis
        if not self.form.gathered:
            return [join([*parts, made], axis)]
        if layers % self.form.gathered == 0:
            return [join(parts, axis), made]
        long, recent = parts
        return [long, join([recent, made], axis)]

    def take_last(self, parts: Parts, layers: int) -> tuple[Parts, tf.Tensor]:
        """The reverse: the parts as they were when so many layers had run, and the map of the next one."""
        axis = self.form.axis
        if not self.form.gathered:
            # Slices and not a split, which would copy both parts although the last is not always needed.
            (maps,) = parts
            end = maps.shape[axis] - self.growth
            if self.form.channels_first:
                return [maps[:, :end]], maps[:, end:]
            return [maps[..., :end]], maps[..., end:]
        if layers % self.form.gathered == 0:
            long, recent = parts
            return self.split(long, layers), recent
        long, recent = parts
        recent, last = tf.split(recent, [recent.shape[axis] - self.growth, self.growth], axis=axis)
        return [long, recent], last


def join(parts: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
    """Parts as one tensor."""
    return tf.concat(parts, axis=axis) if len(parts) > 1 else parts[0]
