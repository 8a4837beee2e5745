"""Chooses the operations that compute a step on a kind of device.

Results are the same, up to rounding.

On a GPU, each operation costs a launch of some microseconds. The best layout of maps has channels before rows (cuDNN's
layout for float32). Some operations refuse to run if results must be repeatable to the bit.
"""

from dataclasses import dataclass
from typing import Final, Literal

import tensorflow as tf

from train.config.configuration import Kernels
from train.model.lockstep import ShardSync


@dataclass(frozen=True, kw_only=True)
class Formulation:
    """The choices that depend on the device."""

    # maps are (batch, channels, height, width) instead of (batch, height, width, channels); TensorFlow on a CPU has no
    # convolution with channels first
    channels_first: bool
    pointwise_as_product: bool  # compute 1x1 convolutions as products of matrices, which needs channels last
    # layers whose maps are gathered in a short part before they join the long one (SegmentedMaps);
    # 0 keeps all maps of a block in one part, which takes fewer operations
    gathered: int
    # Each reader of normalised maps subtracts the part of the statistics from its own gradient, instead of one
    # subtraction from the sum over all readers. The result is the same, because the subtraction is linear. In a reader,
    # one cuDNN call does it together with the gradients of scale and shift. The other way needs FusedBatchNormGrad with
    # ``is_training=False``, which has no deterministic kernel for GPUs
    # (tensorflow/core/kernels/fused_batch_norm_op.cu.cc).
    project_in_readers: bool
    # XLA compiles all updates of weights and running averages into one program, instead of thousands of launches. The
    # rest of the step stays with TensorFlow: XLA has no deterministic gradient of maximum pooling
    # (tensorflow/compiler/tf2xla/kernels/pooling_ops.cc), takes more launches, and compiles for minutes.
    compile_updates: bool
    # The device works while the host continues. A batch is therefore one copy to the device, a thread prepares the next
    # one meanwhile, and the results are one copy to the host, which reads it a step later.
    asynchronous: bool
    # largest number of values for which a norm's statistics are one sum; for more, columns are summed first, which
    # needs channels last, see ``train.model.normalization``; None: always one sum
    longest_sum: int | None
    lockstep: ShardSync | None = None  # norms take the statistics of all shards, which run side by side
    native: bool = False  # kernels of ``train.native``: channels first, float32 or bfloat16, blocks with bottleneck

    @property
    def shards(self) -> int:
        """The number of shards that a norm takes its statistics of."""
        return self.lockstep.shards if self.lockstep else 1

    @property
    def axis(self) -> int:
        return 1 if self.channels_first else -1

    @property
    def reduced(self) -> list[int]:
        """The axes that batch statistics are taken over: all but the channels."""
        return [0, 2, 3] if self.channels_first else [0, 1, 2]

    @property
    def data_format(self) -> Literal["NCHW", "NHWC"]:
        return "NCHW" if self.channels_first else "NHWC"

    @property
    def keras_format(self) -> Literal["channels_first", "channels_last"]:
        return "channels_first" if self.channels_first else "channels_last"

    def spread(self, values: tf.Tensor) -> tf.Tensor:
        """Reshape one value for each channel, (channels,), so that it broadcasts over maps."""
        return tf.reshape(values, [-1, 1, 1]) if self.channels_first else values


FOR_CPU: Final = Formulation(
    channels_first=False,
    pointwise_as_product=True,
    gathered=2,
    project_in_readers=False,
    compile_updates=False,
    asynchronous=False,
    longest_sum=4096,
)
"""The speed is the same for 2 to 6 gathered layers, and 2 take the least memory (``benchmarks/training``)."""

FOR_GPU: Final = Formulation(
    channels_first=True,
    pointwise_as_product=False,
    gathered=0,
    project_in_readers=True,
    compile_updates=True,
    asynchronous=True,
    longest_sum=None,
)
"""Chosen by counting the kernel launches of a training step on an emulated GPU, not by timing a real one."""


FOR_NATIVE: Final = Formulation(
    channels_first=True,
    pointwise_as_product=False,
    gathered=0,
    project_in_readers=False,
    compile_updates=False,
    asynchronous=False,
    longest_sum=None,
    native=True,
)


def choose(kernels: Kernels) -> Formulation:
    if kernels == "native":
        return FOR_NATIVE
    return FOR_GPU if tf.config.list_physical_devices("GPU") else FOR_CPU
