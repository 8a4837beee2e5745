import hashlib

import numpy as np
import pytest
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


def test_identity_changes_nothing() -> None:
    assert np.array_equal(apply("identity"), IMAGE)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"identity", "autocontrast", "equalize"}])
def test_an_operation_without_strength_changes_nothing(name: str) -> None:
    assert np.array_equal(apply(name, magnitude=0), IMAGE)
    assert not np.array_equal(apply(name), IMAGE)


@pytest.mark.parametrize(("name", "axis", "size"), [("translate-x", 1, 20), ("translate-y", 0, 24)])
def test_translation_moves_the_image_and_fills_the_rest(name: str, axis: int, size: int) -> None:
    by = round(150 / 331 * size)
    image, moved = np.moveaxis(IMAGE, axis, 0), np.moveaxis(apply(name), axis, 0)
    assert np.array_equal(moved[: size - by], image[by:])
    assert (moved[size - by :] == FILL).all()
    back = np.moveaxis(apply(name, direction=1), axis, 0)
    assert np.array_equal(back[by:], image[: size - by])


@pytest.mark.parametrize(("name", "axis"), [("shear-x", 0), ("shear-y", 1)])
def test_shearing_moves_each_row_by_its_distance_from_the_middle(name: str, axis: int) -> None:
    image, sheared = np.moveaxis(IMAGE, axis, 0), np.moveaxis(apply(name), axis, 0)
    lines = len(image)
    for row in range(lines):
        by = 0.3 * (row + 0.5 - lines / 2)
        shift = int(np.floor(by + 0.5 + 1e-9))
        width = image.shape[1]
        kept = slice(max(0, -shift), width - max(0, shift))
        taken = slice(max(0, shift), width + min(0, shift))
        assert np.array_equal(sheared[row, kept], image[row, taken]), row


def test_rotation_keeps_the_middle_and_goes_both_ways() -> None:
    image = np.zeros((21, 21, 1), np.uint8)
    image[10] = 200
    for direction, sign in ((0, 1), (1, -1)):
        turned = apply("rotate", image, direction=direction)
        assert turned[10, 10] == 200
        rows = turned[..., 0].argmax(axis=0)[4:17]
        slope = np.polyfit(np.arange(4, 17), rows, 1)[0]
        assert slope == pytest.approx(sign * np.tan(np.radians(30)), abs=0.05)
    assert turned[0, 0] == FILL[0]


def test_colours_and_contrast_are_weakened_and_strengthened() -> None:
    gray = IMAGE.astype(int)
    assert np.ptp(apply("color", direction=1).astype(int), axis=2).mean() < 0.2 * np.ptp(gray, axis=2).mean()
    assert np.ptp(apply("color").astype(int), axis=2).mean() > np.ptp(gray, axis=2).mean()
    assert apply("contrast", direction=1).std() < 0.2 * IMAGE.std() < IMAGE.std() < apply("contrast").std()
    assert apply("brightness", direction=1).mean() == pytest.approx(0.1 * IMAGE.mean(), rel=0.1)
    assert apply("brightness").mean() > 1.5 * IMAGE.mean()
    edges = [np.abs(np.diff(each.astype(int), axis=0)).mean() for each in (apply("sharpness", direction=1), IMAGE)]
    assert edges[0] < 0.5 * edges[1]


def test_values_are_inverted_cut_and_spread() -> None:
    assert np.array_equal(apply("solarize"), 255 - IMAGE)
    half = apply("solarize", magnitude=STRONGEST // 2)
    assert np.array_equal(half, np.where(IMAGE >= 128, 255 - IMAGE, IMAGE))
    assert np.array_equal(apply("posterize"), IMAGE & 0b11110000)
    assert np.array_equal(apply("posterize", magnitude=15, direction=1), IMAGE & 0b11111100)
    for channel in range(3):
        assert (apply("autocontrast")[..., channel].min(), apply("autocontrast")[..., channel].max()) == (0, 255)
    dark = np.repeat(np.arange(8, dtype=np.uint8), 512).reshape(64, 64, 1)
    assert np.unique(apply("equalize", dark)).tolist() == pytest.approx(np.linspace(0, 255, 8), abs=2)


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
