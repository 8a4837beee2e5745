"""Shows that memory does not grow with the number of images: peak resident memory and rate of the input pipeline.

    python -m benchmarks.training.memory [--images 1000 10000 100000]

The images are synthetic JPEG files of 224x224 pixels, most of them hard links to a few hundred different ones. Each set
is read by a process of its own: digested and looked at once, then read for some time in batches as a run reads them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.training.inputs import BATCH, SIZE, write_photos

SECONDS = 20.0


def read_peak() -> float:
    """Return the peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def measure(folder: str, cache: str) -> dict[str, float]:
    from train.cli import parse
    from train.config.resolution import complete
    from train.data import load
    from train.input.batches import Batches

    found, began = {"imported": read_peak()}, time.perf_counter()
    config = parse([folder, "--image-size", str(SIZE), "--batch-size", str(BATCH), "--cache-dir", cache])
    dataset = load(config)
    batches = Batches(dataset, complete(config, (SIZE, SIZE, 3), dataset.class_names))
    batches.make(0)
    found |= {"load_seconds": time.perf_counter() - began, "loaded": read_peak()}
    began, step = time.perf_counter(), 1
    while time.perf_counter() - began < SECONDS:
        batches.make(step)
        step += 1
    rate = (step - 1) * BATCH / (time.perf_counter() - began)
    return found | {"images_per_second": rate, "peak": read_peak()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(measure(options.folder, f"{options.folder}.cache")))
        return
    for count in options.images:
        with tempfile.TemporaryDirectory() as folder:
            photos = Path(folder) / "photos"
            write_photos(photos, count, (SIZE, SIZE))
            before = os.getloadavg()[0]
            words = [sys.executable, "-m", "benchmarks.training.memory", "--folder", str(photos)]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{count:,} images: load {before:.1f}; first look {found['load_seconds']:.0f} s, "
                f"{found['images_per_second']:.0f} images/s; "
                f"at most {found['loaded']:.0f} MB resident until the first batch, {found['peak']:.0f} MB in all",
                flush=True,
            )


if __name__ == "__main__":
    main()
