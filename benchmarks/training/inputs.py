"""Compares input pipelines for photographs with each other and with the training step of DenseNet-121.

    python -m benchmarks.training.inputs [--torch-python VENV/bin/python] [--out FILE]

A pipeline reads, decodes, crops at random, scales to 224x224 and mirrors, in batches of 32. Each has a process of its
own, and the same cores. In a round, every process works for some seconds while the others wait. Medians are reported.
Memory is the largest proportional set size (PSS) of a process and its children at the end of a round. Images are
synthetic JPEG files of 320x256 pixels; most are hard links to a few hundred different ones. PyTorch's pipeline crops by
Pillow in the workers of its DataLoader, as torchvision would, so that it needs torch and Pillow alone.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
SIZE, BATCH, DIFFERENT = 224, 32, 400
CLASSES = 10
WARM = 4
"""Batches before a measurement, more than a pipeline has ready."""


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
    from train.cli import parse
    from train.config.resolution import complete
    from train.data import load
    from train.input.batches import Batches

    words = [folder, "--image-size", str(SIZE), "--batch-size", str(BATCH), "--cache-dir", f"{folder}.cache"]
    config = parse(words)
    dataset = load(config)
    batches = Batches(dataset, complete(config, (SIZE, SIZE, 3), dataset.class_names))
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
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        image = tf.image.resize(tf.image.decode_and_crop_jpeg(content, window, channels=3), (SIZE, SIZE))
        return tf.cast(tf.image.random_flip_left_right(image), tf.uint8)

    paths = sorted(str(path) for path in Path(folder).rglob("*.jpg"))
    data = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    return iter(data.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE))


def torch(folder: str) -> Iterator[object]:
    import torch
    from PIL import Image

    paths = sorted(Path(folder).rglob("*.jpg"))

    class Photos(torch.utils.data.Dataset):  # type: ignore[misc]  # torch is not installed here
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            with Image.open(paths[index]) as file:
                image = file.convert("RGB")
            draw = torch.empty(5).uniform_().tolist()
            area = image.width * image.height * (0.08 + 0.92 * draw[0])
            ratio = (3 / 4) * (16 / 9) ** draw[1]
            width = min(image.width, (area * ratio) ** 0.5)
            height = min(image.height, (area / ratio) ** 0.5)
            left, top = draw[2] * (image.width - width), draw[3] * (image.height - height)
            box = (left, top, left + width, top + height)
            image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
            if draw[4] < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return torch.from_numpy(np.array(image)).permute(2, 0, 1), int(paths[index].parent.name[-1])

    cores = len(os.sched_getaffinity(0))
    loader = torch.utils.data.DataLoader(Photos(), BATCH, shuffle=True, num_workers=cores, drop_last=True)
    while True:
        yield from loader


def training(folder: str) -> Iterator[object]:
    """Train DenseNet-121 on the same batch again and again."""
    del folder
    sys.path.insert(0, str(ROOT))
    from benchmarks.training.peers import ours as peer

    peer.load(len(os.sched_getaffinity(0)))
    step, _ = peer.make({"model": "121", "pixels": SIZE, "batch": BATCH, "kernels": "native"})
    while True:
        yield step()


PEERS: dict[str, Callable[[str], Iterator[object]]] = {
    "training step, native kernels": training,
    "this job": ours,
    "tf.data, Keras layers (256x256, then crop)": keras,
    "tf.data, distorted box": distorted,
    "torch DataLoader, Pillow": torch,
}


def measure_memory() -> float:
    """Return the proportional set size of this process and its children in MB."""
    own = os.getpid()
    total, children = 0, Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()
    for process in (str(own), *children):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1e3


def serve(name: str, folder: str, seconds: float) -> None:
    """Measure a pipeline once for each line on standard input."""
    batches = PEERS[name](folder)
    next(batches)
    print("{}", flush=True)
    for _ in sys.stdin:
        for _ in range(1 if name.startswith("training") else WARM):
            next(batches)
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            next(batches)
            count += BATCH
        rate = count / (time.perf_counter() - began)
        print(json.dumps({"rate": rate, "memory": measure_memory()}), flush=True)


class Candidate:
    def __init__(self, name: str, python: str, folder: Path, seconds: float) -> None:
        self.name, self.rounds = name, list[dict[str, float]]()
        words = [python, __file__, "--peer", name, "--folder", str(folder), "--seconds", str(seconds)]
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.read()

    def read(self) -> dict[str, float]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        raise SystemExit(f"{self.name} died with exit code {self.process.wait()}")

    def measure(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self.rounds.append(self.read())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def summarize(self) -> dict[str, Any]:
        rates = [each["rate"] for each in self.rounds]
        memory = max(each["memory"] for each in self.rounds)
        return {"name": self.name, "images_per_second": statistics.median(rates), "best": max(rates), "mb": memory}


def name_processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    model = f"family {found.get('cpu family')}, model {found.get('model')}"
    return f"{found.get('model name', platform.machine())} ({model}), {len(os.sched_getaffinity(0))} cores"


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    write_photos(folder, options.images)
    result: dict[str, Any] = {"processor": name_processor(), "load_before": os.getloadavg()[0]}
    started: list[Candidate] = []
    try:
        for name in PEERS:
            python = options.torch_python if name.startswith("torch") else sys.executable
            if python:
                started.append(Candidate(name, python, folder, options.seconds))
            else:
                print(f"left out, needs --torch-python: {name}", file=sys.stderr)
        for _ in range(options.rounds):
            for candidate in started:
                candidate.measure()
    finally:
        for candidate in started:
            candidate.close()
    return result | {"load_after": os.getloadavg()[0], "rows": [candidate.summarize() for candidate in started]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--torch-python", default="", help="Python with PyTorch and Pillow")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peer", choices=PEERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        serve(options.peer, options.folder, options.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder) / "photos")
    print(f"{result['processor']}; load {result['load_before']:.1f} before, {result['load_after']:.1f} after")
    for row in result["rows"]:
        print(f"{row['name']}: {row['images_per_second']:.1f} images/s (best {row['best']:.1f}), {row['mb']:.0f} MB")
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
