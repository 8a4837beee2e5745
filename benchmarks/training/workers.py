"""Measure what workers cost: two workers of one thread against one of two threads, on made-up images of CIFAR's size.

    python -m benchmarks.training.workers [--model bc-100-12] [--batches 32 64] [--steps 10] [--ways native stock sync]

A way is native or stock kernels, or stock ones with ``--sync-norm``. Prints a line of JSON for each batch size, way and
team: images a second, the median seconds of a step, and those of what workers exchange in a step, which is repeated
while no worker computes. In a step, an exchange also waits for the slowest worker. With --costs it prints, on paper,
what an exchange takes of up to 1,024 workers.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from train.cluster.tf_config import describe, read_cluster
from train.cluster.workers import FREE, KINDS, WorkerGroup, configure
from train.config.resolution import resolve
from train.step import runtime
from train.system.signals import StopSignal

if TYPE_CHECKING:
    from train.config.configuration import Kernels

Way = Literal["native", "stock", "sync"]
FIRST_PORT, WARM_UP, EXCHANGES = 23470, 2, 20
TEAMS = ((1, 2), (2, 1), (1, 1)) * 2
"""Workers, and threads of each."""

ROWS = {"BC-100-12": 775_488, "DenseNet-121": 8_062_506}
"""Values of a row: weights, averages, loss and hits. DenseNet-121 has 1000 classes, and Keras counts its weights."""

HOP = 0.0005
"""Seconds of a message between two workers, assumed: on one machine a round of small ones took 0.0014 to 0.0021."""


def describe_costs() -> str:
    """Return a table of the exchange for as many workers as shards: bytes that each receives, and seconds.

    Of N workers, each receives its slice of all rows, which has as many values as one row, and then the sums, as many
    again; both without its own part. Order and sums travel in rings: N - 1 messages one after the other for each.
    """
    lines = ["| workers | " + " | ".join(f"{name}: bytes | 1, 10, 100 Gbit/s" for name in ROWS) + " | messages |"]
    lines.append("|---" * (2 + 2 * len(ROWS)) + "|")
    for workers in (8, 64, 1024):
        cells = []
        for values in ROWS.values():
            received = 2 * 4 * values * (workers - 1) / workers
            seconds = ", ".join(f"{8 * received / speed:.2g}" for speed in (1e9, 1e10, 1e11))
            cells += [f"{received / 1e6:.2g} MB", f"{seconds} s"]
        lines.append(f"| {workers:,} | {' | '.join(cells)} | {2 * (workers - 1) * HOP:.2g} s |")
    return "\n".join(lines)


def measure(model: str, batch: int, steps: int, threads: int, way: Way) -> dict[str, Any]:
    cluster = read_cluster()
    kernels: Kernels = "native" if way == "native" else "stock"
    runtime.prepare(threads, kernels=kernels, connect=partial(configure, cluster) if cluster else None)
    import tensorflow as tf

    from train.run.shards import STEP, ShardedStep, choose_form
    from train.step import training

    config = resolve("cifar10", model=model, batch_size=batch, shards=2, kernels=kernels, sync_norm=way == "sync")
    group = WorkerGroup(cluster, StopSignal()) if cluster else None
    form, unit = choose_form(config, group), np.ones(3)
    shapes: list[Any] = []

    def gather(value: Any, number: int) -> Any:
        shapes.append(value.shape)
        return group.gather_in_graph(value, FREE + number)  # type: ignore[union-attr]  # there is one

    if group and form.lockstep:
        form.lockstep.gather = gather

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def gather_all() -> Any:
        found = tf.zeros([])
        for number, shape in enumerate(shapes):
            with tf.control_dependencies([found]):
                found = group.gather_in_graph(tf.zeros(shape), FREE + number)  # type: ignore[union-attr]
        return found

    times: list[float] = []
    exchanges: list[float] = [0.0]
    with group.connected(["0" * 64] * len(KINDS), threads=threads) if group else nullcontext():
        state, rule = training.start(config, form)
        sharded = ShardedStep(state, rule, config, 0 * unit, unit, form=form, group=group)
        own = batch // config.shards * len(sharded.local_shards)
        images, labels = np.zeros((own, *config.shape), np.uint8), np.zeros(own, np.int32)
        for _ in range(WARM_UP + steps):
            began = time.perf_counter()
            sharded(images, labels, np.float32(0)).read()
            times.append(time.perf_counter() - began)
        rows = tf.zeros([len(sharded.local_shards), sharded.columns])
        for _ in range(EXCHANGES if group else 0):
            began = time.perf_counter()
            group.all_gather_number(STEP)  # type: ignore[union-attr]
            if form.lockstep:
                gather_all()
            group.all_gather(group.all_to_all(rows)[0])  # type: ignore[union-attr]
            exchanges.append(time.perf_counter() - began)
    found = {"step": statistics.median(times[WARM_UP:]), "exchange": statistics.median(exchanges)}
    return found | {"first_step": times[0], "gathers": len(shapes)}


def run_team(options: argparse.Namespace, batch: int, way: Way, count: int, threads: int) -> dict[str, Any]:
    addresses = [f"127.0.0.1:{FIRST_PORT + index}" for index in range(count)]
    children = []
    for index in range(count):
        words = [sys.executable, "-m", "benchmarks.training.workers", "--model", options.model]
        words += ["--batches", str(batch), "--ways", way, "--steps", str(options.steps), "--threads", str(threads)]
        variables = os.environ | describe(addresses, index)
        children.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True))
    found: dict[str, Any]
    found, *_ = [json.loads(child.communicate()[0]) for child in children]
    about = {"model": options.model, "batch": batch, "way": way, "workers": count, "threads": threads}
    share = found["exchange"] / found["step"]
    return {**about, "images_per_second": batch / found["step"], **found, "communication": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bc-100-12")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--ways", nargs="+", default=get_args(Way), choices=get_args(Way))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="be one worker with so many threads")
    parser.add_argument(
        "--costs", action="store_true", help="print what is expected of many workers, and measure nothing"
    )
    options = parser.parse_args()
    if options.costs:
        print(describe_costs())
        return
    if options.threads:
        print(json.dumps(measure(options.model, options.batches[0], options.steps, options.threads, options.ways[0])))
        return
    for batch, way, team in itertools.product(options.batches, options.ways, TEAMS):
        print(json.dumps(run_team(options, batch, way, *team)), flush=True)


if __name__ == "__main__":
    main()
