"""Measure what workers cost: two workers of one thread against one of two threads, on made-up images of CIFAR's size.

    python -m benchmarks.training.workers [--model bc-100-12] [--batches 32 64] [--steps 10]

Prints a line of JSON for each batch size and kind of team: images a second, the median seconds of a step, and those of
an exchange alone, which is repeated while no worker computes. In a step, an exchange also waits for the slowest worker.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from train import runtime
from train.cluster import describe, read_cluster
from train.options import resolve
from train.process import StopSignal
from train.workers import KINDS, Crew, configure

FIRST_PORT, WARM_UP, EXCHANGES = 23470, 2, 20


def measure(model: str, batch: int, steps: int, threads: int) -> dict[str, Any]:
    cluster = read_cluster()
    runtime.prepare(threads, kernels="native", connect=partial(configure, cluster) if cluster else None)
    from train import step
    from train.model import formulation
    from train.shards import STEP, ShardedStep

    config = resolve("cifar10", model=model, batch_size=batch, shards=2, kernels="native")
    form, unit = formulation.choose("native"), np.ones(3)
    crew = Crew(cluster, StopSignal()) if cluster else None
    times: list[float] = []
    exchanges: list[float] = [0.0]
    with crew.meeting(["0" * 64] * len(KINDS)) if crew else nullcontext():
        state, rule = step.start(config, form)
        sharded = ShardedStep(state, rule, config, 0 * unit, unit, form=form, crew=crew)
        own = batch // config.shards * len(sharded.own)
        images, labels = np.zeros((own, *config.shape), np.uint8), np.zeros(own, np.int32)
        for _ in range(WARM_UP + steps):
            began = time.perf_counter()
            sharded(images, labels, np.float32(0)).read()
            times.append(time.perf_counter() - began)
        for _ in range(EXCHANGES if crew else 0):
            began = time.perf_counter()
            crew.exchange(sharded.make_empty(), STEP)  # type: ignore[union-attr]  # there is one
            exchanges.append(time.perf_counter() - began)
    return {"step": statistics.median(times[WARM_UP:]), "exchange": statistics.median(exchanges)}


def run_team(options: argparse.Namespace, batch: int, count: int) -> dict[str, Any]:
    addresses = [f"127.0.0.1:{FIRST_PORT + index}" for index in range(count)]
    children = []
    for index in range(count):
        words = [sys.executable, "-m", "benchmarks.training.workers", "--model", options.model]
        words += ["--batches", str(batch), "--steps", str(options.steps), "--threads", str(2 // count)]
        variables = os.environ | describe(addresses, index)
        children.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True))
    found: dict[str, Any]
    found, *_ = [json.loads(child.communicate()[0]) for child in children]
    about = {"model": options.model, "batch": batch, "workers": count, "threads": 2 // count}
    share = found["exchange"] / found["step"]
    return {**about, "images_per_second": batch / found["step"], **found, "communication": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="bc-100-12")
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=0, help="be one worker with so many threads")
    options = parser.parse_args()
    if options.threads:
        print(json.dumps(measure(options.model, options.batches[0], options.steps, options.threads)))
        return
    for batch in options.batches:
        for count in (1, 2, 1, 2):
            print(json.dumps(run_team(options, batch, count)), flush=True)


if __name__ == "__main__":
    main()
