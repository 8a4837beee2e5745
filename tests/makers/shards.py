from typing import Any

import numpy as np

from train import data
from train.cluster import workers
from train.config.configuration import TrainConfig
from train.config.resolution import resolve
from train.run import shards

SIZE, PARTS = 24, 3


def configure(**options: Any) -> TrainConfig:
    given: dict[str, Any] = {"depth": 10, "kernels": "stock", "batch_size": SIZE, "shards": PARTS} | options
    return resolve("digits", **given)


def make_step(config: TrainConfig, group: workers.WorkerGroup | None = None) -> shards.ShardedStep:
    return shards.prepare(config, data.load(config), group)


def draw() -> tuple[Any, Any, Any]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 17, (SIZE, 8, 8, 1)).astype(np.uint8)
    return images, (np.arange(SIZE) % 10).astype(np.int32), np.float32(0.1)
