"""The same training steps twice give the same bytes."""

import hashlib
from typing import Any

from . import loading, numerics
from .check import TENSORFLOW, Ask, Check, Evidence, Fail

_STEPS = 3
_SEED = (2019, 0)


def training(ask: Ask) -> Evidence:
    """Train a small network twice from one seed, with op determinism, and compare the weights bit by bit.

    Convolution, batch norm, dropout, a gather whose gradient is a scatter, and a loss: the kinds of op that have
    nondeterministic GPU kernels. Op determinism stays on in this process: this check comes last.
    """
    tf = loading.tensorflow()
    loading.require(tf, "config.experimental.enable_op_determinism")()
    evidence: Evidence = {}
    for device in numerics.devices(tf, ask):
        with tf.device(device):
            first, second = _train(tf), _train(tf)
        evidence[device] = {"steps": _STEPS, "sha256": [first, second]}
        if first != second:
            raise Fail(
                f"the same {_STEPS} training steps gave different weights on {device}",
                remedy="an op of this build ignores determinism: runs made with it cannot be reproduced to the bit",
                **evidence,
            )
    return evidence


def _train(tf: Any) -> str:
    """Digest of the weights after a few steps of gradient descent on made-up images."""
    draw = tf.random.stateless_normal
    images = draw([16, 8, 8, 3], seed=_SEED)
    labels = tf.range(16) % 4
    kernel = tf.Variable(draw([3, 3, 3, 8], seed=(1, 0)) * 0.2)
    table = tf.Variable(draw([4, 8], seed=(2, 0)) * 0.2)
    scale, offset = tf.Variable(tf.ones([8])), tf.Variable(tf.zeros([8]))
    weights = [kernel, table, scale, offset]
    for step in range(_STEPS):
        with tf.GradientTape() as tape:
            x = tf.nn.conv2d(images, kernel, strides=1, padding="SAME")
            x = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)[0]
            x = tf.nn.experimental.stateless_dropout(tf.nn.relu(x), rate=0.2, seed=(3, step))
            # Sixteen lookups of four rows: the gradient adds up many updates to one row.
            logits = tf.reduce_mean(x, [1, 2]) @ tf.transpose(table) + tf.reduce_sum(tf.gather(table, labels), 1, True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.1 * tf.convert_to_tensor(gradient))
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(weight.numpy().tobytes())
    return digest.hexdigest()


CHECKS = (
    Check("determinism.training", "the same training steps twice give the same bytes", training, 180, (TENSORFLOW,)),
)
