"""Counts the images per second of the input pipeline alone (order, shift, mirror, gather, as in a run): ``python
benchmarks/training/pipeline.py DATASET [options of python -m train]``.
"""

import sys
import time

from train.cli import parse
from train.data import load
from train.input.batches import Batches

SECONDS = 5.0


def main() -> None:
    config = parse(sys.argv[1:])
    batches = Batches(load(config), config)
    batches.make(0)  # the first batch also computes the mean of the data set
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        batches.make(steps)
        steps += 1
    rate = steps * config.batch_size / (time.perf_counter() - began)
    print(f"{rate:,.0f} images/s in batches of {config.batch_size}")


if __name__ == "__main__":
    main()
