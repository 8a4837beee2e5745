"""Says which GPUs of this machine a job may use: those that the caller was granted by CUDA_VISIBLE_DEVICES."""

import os
from itertools import takewhile

from toolkit.engine import Job

_VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_NONE = "-1"


def grant(numbers: str) -> None:
    """Let what this program starts see only some GPUs of this machine, given by the numbers that nvidia-smi counts.

    By itself, CUDA counts the fastest GPU first. What the user has granted stays.
    """
    if numbers and _VISIBLE not in os.environ:
        os.environ.update({_VISIBLE: numbers, _ORDER: "PCI_BUS_ID"})


def hide() -> None:
    """Let nothing that this program starts see a GPU."""
    os.environ[_VISIBLE] = _NONE


def choose(job: Job) -> str:
    """Return the GPUs that a job may use, as CUDA_VISIBLE_DEVICES has them; empty for all.

    A scheduler gives each of its jobs some, by this variable of the caller. Not every cluster hides the others.
    """
    return os.environ.get(_VISIBLE, "") if job.gpu else ""


def name(job: Job) -> dict[str, str]:
    """Return the variables by which a job sees no other GPUs than it may use."""
    hidden = _NONE if os.environ.get(_VISIBLE) == _NONE else ""
    chosen, order = choose(job) or hidden, os.environ.get(_ORDER, "")
    return {_VISIBLE: chosen, **({_ORDER: order} if order else {})} if chosen else {}


def split(text: str) -> list[str]:
    """Return the GPUs in a value of CUDA_VISIBLE_DEVICES, by number or name. CUDA stops at the first that is none."""
    return list(takewhile(lambda name: name not in {"", "-1"}, text.replace(" ", "").split(",")))
