"""Plants a mistake that matters on a GPU only into the training step."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import train.step.training

Step = Callable[..., Any]


def _add(extra: Callable[[Any, Any], Any]) -> Callable[[Step], Step]:
    def plant(step: Step) -> Step:
        def planted(images: Any, labels: Any, *others: Any) -> Any:
            outcome = step(images, labels, *others)
            return outcome._replace(
                loss=outcome.loss + 0 * tf.cast(tf.reduce_sum(extra(images, labels)), outcome.loss.dtype)
            )

        return planted

    return plant


def _multiply_integers(images: Any, labels: Any) -> Any:
    row = tf.cast(tf.reshape(images, [1, -1]), tf.int16)
    return tf.raw_ops.MatMul(a=tf.cast(row, tf.int32), b=tf.cast(row, tf.int32), transpose_b=True)


def _differentiate_frozen_norm(images: Any, labels: Any) -> Any:
    x = tf.cast(images, tf.float32)
    ones = tf.ones([x.shape[-1]])
    return tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=x, x=x, scale=ones, reserve_space_1=ones, reserve_space_2=ones, reserve_space_3=ones,
        is_training=False,
    )[0]  # fmt: skip


def _count_in_int32(images: Any, labels: Any) -> Any:
    bright = tf.cast(tf.reduce_sum(tf.cast(images, tf.float32), [1, 2, 3]), tf.int32)
    return tf.maximum(bright // 3, tf.cast(labels, tf.int32)) + bright


def _visit_numpy(images: Any, labels: Any) -> Any:
    return tf.numpy_function(lambda values: values.astype(np.float32) / 2, [tf.cast(images, tf.float32)], tf.float32)


def _launch_a_lot(images: Any, labels: Any) -> Any:
    value = tf.cast(images, tf.float32)
    for _ in range(1000):
        value = tf.nn.softmax(value)
    return value


def _read_each_step(step: Step) -> Step:
    values = [tf.Variable(float(index)) for index in range(8)]

    def planted(*arguments: Any) -> Any:
        outcome = step(*arguments)
        for value in values:
            value.numpy()
        return outcome

    return planted


def _keep_everything(step: Step) -> Step:
    kept = []

    def planted(*arguments: Any) -> Any:
        kept.append(tf.constant(np.ones([1024, 1024], np.float32)))
        return step(*arguments)

    return planted


IN_GRAPH = {
    "integer-product": _add(_multiply_integers),
    "determinism": _add(_differentiate_frozen_norm),
    "int32": _add(_count_in_int32),
    "numpy": _add(_visit_numpy),
    "launches": _add(_launch_a_lot),
}
AROUND = {"read": _read_each_step, "growth": _keep_everything}


def plant(name: str) -> None:
    if name in IN_GRAPH:
        make = train.step.training.make_train_step
        vars(train.step.training).update(
            make_train_step=lambda *given, **options: IN_GRAPH[name](make(*given, **options))
        )
    elif name in AROUND:
        compile_step = train.step.training.compile_train_step
        vars(train.step.training).update(
            compile_train_step=lambda *given, **options: AROUND[name](compile_step(*given, **options))
        )
