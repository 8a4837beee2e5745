"""The learning rate as a pure function of the step."""

import math

from train.config import Schedule

WARM_UP = 0.3
"""Share of a one-cycle run in which the rate rises."""


def rate_at(schedule: Schedule, highest: float, step: int, total: int) -> float:
    """Learning rate of a step, counted from 0, in a run of `total` steps."""
    done = step / max(1, total)
    match schedule:
        case "constant":
            return highest
        case "steps":
            return highest * (1 if done < 0.5 else 0.1 if done < 0.75 else 0.01)
        case "cosine":
            return highest * (1 + math.cos(math.pi * done)) / 2
        case "one-cycle":
            if done < WARM_UP:
                return highest * (0.04 + 0.96 * done / WARM_UP)
            return highest * (1 + math.cos(math.pi * (done - WARM_UP) / (1 - WARM_UP))) / 2
