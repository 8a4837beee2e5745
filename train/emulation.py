"""Tells an emulated GPU from a real one, and keeps it out of everything but a rehearsal."""

import ctypes
from collections.abc import Iterable
from typing import Final

from train.errors import PreflightError

MARK: Final = "(emulated)"
"""Stands at the end of every emulated device's name, so that no record can pass for a real card's."""

_SYMBOL: Final = "nullgpu_emulated"


class _Permission:
    given = False


def allow() -> None:
    """Let this process train on an emulated device: called by a rehearsal, which throws the results away."""
    _Permission.given = True


def is_emulated(names: Iterable[str]) -> bool:
    """Whether one of these GPUs is emulated, by its name or by what the CUDA driver of this process is."""
    names = list(names)
    return bool(names) and (any(MARK in name for name in names) or _driver_is_emulated())


def _driver_is_emulated() -> bool:
    try:
        return hasattr(ctypes.CDLL("libcuda.so.1"), _SYMBOL)
    except OSError:
        return False


def refuse(names: Iterable[str]) -> None:
    """Refuse to train on an emulated GPU outside of a rehearsal.

    Args:
        names: of the GPUs that TensorFlow shows.

    Raises:
        PreflightError: one of them is emulated.
    """
    names = list(names)
    if not _Permission.given and is_emulated(names):
        raise PreflightError(
            f"this GPU is emulated: {', '.join(names)}",
            why="an emulated GPU computes nothing, so a run on it would be worthless",
            remedy="take the emulated libraries out of LD_LIBRARY_PATH; `toolkit rehearse` is what they are for",
        )
