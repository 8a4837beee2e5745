"""Makes DenseNets of ``keras.applications`` with random weights, and files as Keras publishes them."""

from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
from keras.src.applications import densenet
from keras.src.legacy.saving import legacy_h5_format
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

SMALL = [1, 2, 1, 1]
"""Layers in the blocks of a network that is small enough for quick tests."""

LAYERS = {"121": [6, 12, 24, 16], "169": [6, 12, 32, 32], "201": [6, 12, 48, 32]}


def make(layers: list[int], side: int) -> keras.Model:
    """Make a network with random weights, and norms near the statistics of photographs, other ones for each reader."""
    keras.utils.set_random_seed(0)
    model = densenet.DenseNet(layers, weights=None, input_shape=(side, side, 3), classifier_activation=None)
    generator = np.random.default_rng(0)
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    for norm in norms:
        norm.momentum = 0.0
    model(preprocess(read_photos(side)), training=True)
    for norm in norms:
        gamma, beta, mean, variance = norm.get_weights()
        factors = generator.normal(1, 0.1, (3, *gamma.shape))
        shift = generator.normal(0, 0.1, (2, *gamma.shape))
        norm.set_weights([gamma * factors[0], beta + shift[0], mean * factors[1] + shift[1], variance * factors[2]])
    return model


def save(model: keras.Model, path: Path) -> Path:
    with h5py.File(path, "w") as file:
        legacy_h5_format.save_weights_to_hdf5_group(file, model)
    return path


def read_photos(side: int) -> NDArray[np.uint8]:
    photos = (Image.fromarray(each).crop((100, 0, 500, 400)) for each in load_sample_images().images)
    return np.stack([np.asarray(each.resize((side, side))) for each in photos])


def compute(model: keras.Model, photos: NDArray[np.uint8]) -> NDArray[Any]:
    return np.asarray(model(preprocess(photos), training=False))


def preprocess(photos: NDArray[np.uint8]) -> Any:
    return densenet.preprocess_input(photos.astype(np.float32))
