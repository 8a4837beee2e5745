from typing import Any

from benchmarks.training.peers import Training, make_batch


def load(job: dict[str, Any]) -> None:
    import os

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import keras  # noqa: F401  # its import is part of the framework, not of the candidate
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(job["threads"])


def build(depth: int, growth: int = 12, classes: int = 10, shape: tuple[int, int, int] = (32, 32, 3)) -> Any:
    import keras
    from keras import layers

    decay = keras.regularizers.L2(1e-4)

    def convolve(x: Any, channels: int, size: int) -> Any:
        return layers.Conv2D(
            channels, size, padding="same", use_bias=False, kernel_initializer="he_normal", kernel_regularizer=decay
        )(x)

    def activate(x: Any) -> Any:
        return layers.ReLU()(layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x))

    image = keras.Input(shape)
    x = convolve(image, 2 * growth, 3)
    for block in range(3):
        for _ in range((depth - 4) // 6):
            made = convolve(activate(x), 4 * growth, 1)
            x = layers.Concatenate()([x, convolve(activate(made), growth, 3)])
        x = activate(x)
        if block < 2:
            x = layers.AveragePooling2D(2)(convolve(x, x.shape[-1] // 2, 1))
    return keras.Model(image, layers.Dense(classes)(layers.GlobalAveragePooling2D()(x)))


def build_application(shape: tuple[int, int, int]) -> Any:
    import keras

    return keras.applications.DenseNet121(weights=None, input_shape=shape, classes=10, classifier_activation=None)


def make(job: dict[str, Any]) -> Training:
    import keras
    import tensorflow as tf

    images, labels = make_batch(job)
    shape = images.shape[1:]
    model = build_application(shape) if job.get("model") == "121" else build(job.get("depth", 100), shape=shape)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
    criterion = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if job["loop"] == "fit":
        model.compile(optimizer, criterion, jit_compile=False)
        return Training(lambda: float(model.train_on_batch(images, labels)), model.get_weights)

    @tf.function  # type: ignore[untyped-decorator]
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = criterion(labels, model(images, training=True)) + sum(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    arguments = (tf.constant(images), tf.constant(labels))
    return Training(lambda: float(step(*arguments)), model.get_weights)
