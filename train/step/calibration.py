"""Compares how probable a network calls its answers with how often they are right.

Images are put into bins by the probability of their predicted class, as in Guo et al., "On Calibration of Modern Neural
Networks" (ICML 2017, https://arxiv.org/abs/1706.04599).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BINS: Final = 15
"""Number of bins, as in the paper."""


@dataclass(frozen=True)
class Bin:
    """The images of a bin: how many, the mean probability of their predicted classes, and the share that is right."""

    images: int
    confidence: float
    accuracy: float


def fill_bins(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[Bin, ...]:
    """Return the bins that have images, the least probable first."""
    places = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    sums = (np.bincount(places, weights, minlength=BINS).tolist() for weights in (None, confidence, right))
    return tuple(Bin(int(n), sure / n, good / n) for n, sure, good in zip(*sums, strict=True) if n)


def compute_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean gap of the bins, weighted by their numbers of images."""
    return sum(bin_.images * abs(bin_.confidence - bin_.accuracy) for bin_ in bins) / sum(bin_.images for bin_ in bins)


def describe(bins: Sequence[Bin]) -> dict[str, Any]:
    """Return the calibration as records have it: the error, and three numbers for each bin."""
    return {
        "calibration_error": compute_error(bins),
        "calibration": [[bin_.images, bin_.confidence, bin_.accuracy] for bin_ in bins],
    }
