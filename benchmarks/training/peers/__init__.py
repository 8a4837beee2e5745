"""Holds the candidates. Each has ``load(threads)`` and ``make_step(job)``, and imports only its own framework."""

from typing import Any

import numpy as np


def make_batch(job: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return normalised square images (batch, height, width, 3) in float32 and labels (batch,) in int64."""
    numbers, pixels = np.random.default_rng(0), job.get("pixels", 32)
    images = numbers.normal(size=(job["batch"], pixels, pixels, 3)).astype(np.float32)
    return images, numbers.integers(0, 10, job["batch"])
