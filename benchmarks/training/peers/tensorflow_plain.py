from collections.abc import Callable
from typing import Any

from benchmarks.training.peers import Training, make_batch
from benchmarks.training.peers.keras_stock import load  # noqa: F401  # for the worker

DECAY, MOMENTUM, AVERAGING = 1e-4, 0.9, 0.9


def make(job: dict[str, Any]) -> Training:
    import tensorflow as tf

    weights: list[tf.Variable] = []
    averages: list[tf.Variable] = []
    made: dict[str, tf.Variable] = {}

    def create(name: str, initial: Callable[[], Any], kept: list[tf.Variable]) -> tf.Variable:
        if name not in made:
            with tf.init_scope():
                made[name] = tf.Variable(initial(), trainable=kept is weights)
            kept.append(made[name])
        return made[name]

    def convolve(x: tf.Tensor, name: str, channels: int, size: int) -> tf.Tensor:
        shape = (size, size, x.shape[-1], channels)
        deviation = (2 / (size * size * x.shape[-1])) ** 0.5
        kernel = create(name, lambda: tf.random.stateless_normal(shape, [0, len(made)]) * deviation, weights)
        return tf.nn.conv2d(x, kernel, 1, "SAME")

    def activate(x: tf.Tensor, name: str) -> tf.Tensor:
        channels = x.shape[-1]
        gamma = create(f"{name}/gamma", lambda: tf.ones(channels), weights)
        beta = create(f"{name}/beta", lambda: tf.zeros(channels), weights)
        y, *batch = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-5)
        running = (
            create(f"{name}/mean", lambda: tf.zeros(channels), averages),
            create(f"{name}/variance", lambda: tf.ones(channels), averages),
        )
        for average, value in zip(running, batch, strict=True):
            average.assign(AVERAGING * average + (1 - AVERAGING) * value)
        return tf.nn.relu(y)

    def predict(x: tf.Tensor, depth: int, growth: int = 12, classes: int = 10) -> tf.Tensor:
        x = convolve(x, "stem", 2 * growth, 3)
        for block in range(3):
            for layer in range((depth - 4) // 6):
                name = f"{block}/{layer}"
                narrow = convolve(activate(x, f"{name}/norm1"), f"{name}/conv1", 4 * growth, 1)
                new = convolve(activate(narrow, f"{name}/norm2"), f"{name}/conv2", growth, 3)
                x = tf.concat([x, new], -1)
            x = activate(x, f"{block}/norm")
            if block < 2:
                x = tf.nn.avg_pool2d(convolve(x, f"{block}/transition", x.shape[-1] // 2, 1), 2, 2, "VALID")
        return convolve(tf.reduce_mean(x, [1, 2], keepdims=True), "classifier", classes, 1)[:, 0, 0]

    slots: list[tf.Variable] = []

    @tf.function  # type: ignore[untyped-decorator]
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = predict(images, job.get("depth", 100))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        if not slots:
            with tf.init_scope():
                slots.extend(tf.Variable(tf.zeros(weight.shape), trainable=False) for weight in weights)
        for weight, gradient, slot in zip(weights, tape.gradient(loss, weights), slots, strict=True):
            decayed = gradient + DECAY * weight
            slot.assign(MOMENTUM * slot + decayed)
            weight.assign_sub(0.1 * (decayed + MOMENTUM * slot))
        return loss

    images, labels = (tf.constant(part) for part in make_batch(job))
    return Training(lambda: float(step(images, labels)), lambda: [weight.numpy() for weight in weights])
