"""Compares input pipelines for photographs: read, decode, crop at random, scale to 224x224, mirror, in batches of 32.

    python -m benchmarks.training.inputs --images 2000 [--torch-python VENV/bin/python]

Each pipeline is a process of its own with the same threads. Memory is the growth of its peak after its imports and its
first batch. The images are synthetic JPEG files of 320x256 pixels; most are hard links to a few hundred different ones.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

SIZE, BATCH, DIFFERENT = 224, 32, 400
CLASSES = 10


def write_photos(folder: Path, count: int, size: tuple[int, int] = (320, 256)) -> None:
    """Write smooth noise, which JPEG compresses about as much as photographs: 35 kB each of 320x256 pixels."""
    from PIL import Image

    numbers, kept = np.random.default_rng(0), []
    for index in range(count):
        path = folder / f"class{index % CLASSES}" / f"{index:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if index < DIFFERENT:
            coarse = numbers.integers(0, 256, (size[1] // 4, size[0] // 4, 3)).astype(np.uint8)
            image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
            image.save(path, quality=90)
            kept.append(path)
        else:
            os.link(kept[index % DIFFERENT], path)


def ours(folder: str) -> Iterator[object]:
    from train.batches import Batches
    from train.cli import parse
    from train.data import load
    from train.options import settle

    words = [folder, "--image-size", str(SIZE), "--batch-size", str(BATCH), "--cache-dir", f"{folder}.cache"]
    config = parse(words)
    dataset = load(config)
    batches = Batches(dataset, settle(config, (SIZE, SIZE, 3), dataset.class_names))
    step = 0
    while True:
        yield batches.make(step)
        step += 1


def keras(folder: str) -> Iterator[object]:
    """Follow Keras' guide to preprocessing: files by class, then layers, in ``tf.data``."""
    import keras
    import tensorflow as tf

    crop = keras.Sequential([keras.layers.RandomCrop(SIZE, SIZE), keras.layers.RandomFlip("horizontal")])
    data = keras.utils.image_dataset_from_directory(folder, batch_size=BATCH, image_size=(256, 256), verbose=False)
    data = data.map(lambda images, labels: (crop(images, training=True), labels), num_parallel_calls=tf.data.AUTOTUNE)
    return iter(data.repeat().prefetch(tf.data.AUTOTUNE))


def distorted(folder: str) -> Iterator[object]:
    """Crop as ours does, by the operations of TensorFlow that decode only the chosen part of a file."""
    import tensorflow as tf

    def read(path: tf.Tensor) -> tf.Tensor:
        content = tf.io.read_file(path)
        shape = tf.io.extract_jpeg_shape(content)
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            tf.zeros((1, 0, 4)),
            min_object_covered=0.0,
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.resize(tf.image.decode_and_crop_jpeg(content, window, channels=3), (SIZE, SIZE))
        return tf.cast(tf.image.random_flip_left_right(image), tf.uint8)

    paths = sorted(str(path) for path in Path(folder).rglob("*.jpg"))
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    return iter(data.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE))


def torch(folder: str) -> Iterator[object]:
    from torch.utils.data import DataLoader
    from torchvision import datasets, transforms

    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    data = datasets.ImageFolder(folder, transforms.Compose(steps))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=len(os.sched_getaffinity(0)), drop_last=True)
    while True:
        yield from loader


PEERS: dict[str, Callable[[str], Iterator[object]]] = {
    "this job": ours,
    "tf.data, Keras layers (256x256, then crop)": keras,
    "tf.data, distorted box": distorted,
    "torch DataLoader, torchvision": torch,
}


def measure(name: str, folder: str, seconds: float) -> dict[str, float]:
    batches = PEERS[name](folder)
    next(batches)
    before, began, count = _read_peak(), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(batches)
        count += BATCH
    rate = count / (time.perf_counter() - began)
    return {"images_per_second": rate, "peak": _read_peak(), "growth": _read_peak() - before}


def _read_peak() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--torch-python", default="")
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        print(json.dumps(measure(options.peer, options.folder, options.seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        write_photos(photos, options.images)
        for name in PEERS:
            python = options.torch_python if name.startswith("torch") else sys.executable
            if python:
                words = [python, __file__, "--peer", name, "--folder", str(photos), "--seconds", str(options.seconds)]
                done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
                found = json.loads(done.stdout.splitlines()[-1])
                print(f"{name}: {found['images_per_second']:.0f} images/s, peak {found['peak']:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
