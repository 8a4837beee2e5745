import hashlib

import numpy as np
from numpy.typing import NDArray

from train.config.configuration import STRONGEST
from train.config.resolution import resolve
from train.data import load
from train.data.order import locate
from train.input import augmentation
from train.input.batches import Batches

FILL = np.array([9, 8, 7], np.uint8)
NAMES = list(augmentation.OPERATIONS)
EXPECTED = "6247084ab1be7ae3d789cfaa7413e8718c637a554c7f9ef565e9dd35612edfda"
IMAGE = np.random.default_rng(3).integers(40, 200, (24, 20, 3)).astype(np.uint8)
Bytes = NDArray[np.uint8]


def apply(name: str, image: Bytes = IMAGE, magnitude: int = STRONGEST, direction: int = 0) -> Bytes:
    draws = np.array([[[NAMES.index(name), direction]]], np.uint8)
    return augmentation.apply_operations(image[None], draws, magnitude, FILL[: image.shape[-1]])[0]


def test_all_operations_give_known_bytes() -> None:
    """Later versions of this code and of Pillow, and other processors, must not change a run's images."""
    state = hashlib.sha256()
    for name in NAMES:
        for magnitude, direction in ((9, 0), (9, 1), (30, 0)):
            for image in (IMAGE, IMAGE[..., :1]):
                found = apply(name, image, magnitude, direction)
                assert found.shape == image.shape
                state.update(found.tobytes())
    assert state.hexdigest() == EXPECTED


def test_each_image_is_a_function_of_seed_epoch_and_example() -> None:
    config = resolve("digits", batch_size=240, randaugment=3, magnitude=20)
    dataset = load(config)
    plain = Batches(dataset, resolve("digits", batch_size=240))
    batches = Batches(dataset, config)
    fill = np.rint(dataset.mean).astype(np.uint8)
    for step in (0, 7):
        images, labels = batches.make(step)
        epoch, _ = locate(step, len(dataset.train), 240)
        draws = augmentation.draw_operations(config.seed, epoch, len(dataset.train), 3)
        for example, before, found in zip(batches.indices(step), plain.make(step)[0], images, strict=True):
            alone = augmentation.apply_operations(before[None], draws[example][None], 20, fill)[0]
            assert np.array_equal(alone, found)
        assert np.array_equal(labels, dataset.train.labels[batches.indices(step)])
    numbers = augmentation.draw_operations(0, 0, 1437, 3)
    assert np.bincount(numbers[..., 0].ravel(), minlength=14).min() > 1437 * 3 / 14 * 0.8
    for seed, epoch in ((1, 0), (0, 1)):
        assert not np.array_equal(augmentation.draw_operations(seed, epoch, 1437, 3), numbers)
