"""Holds the candidates. Each has ``load(threads)`` and ``make_step(job)``, and imports only its own framework."""

from typing import Any

import numpy as np


def make_batch(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return normalised images (size, 32, 32, 3) in float32 and labels (size,) in int64, the same for every peer."""
    numbers = np.random.default_rng(0)
    return numbers.normal(size=(size, 32, 32, 3)).astype(np.float32), numbers.integers(0, 10, size)
