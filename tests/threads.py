"""The number of threads of every training job in a process of the tests, and the number of cores that they count.

TensorFlow takes its threads once in a process. So jobs that leave them open get them from here, not from the machine.
"""

import functools
import os
from pathlib import Path

from train import cores
from train.system import memory

THREADS = 2
CORES = "TOOLKIT_TEST_CORES"
"""Variable with the cores that the tests shall count: the process keeps so many of its own, and feigns the others."""

PROCESS_BYTES = 2_000_000_000
"""Memory of a process of the tests, TensorFlow's 700 MB included, and of the programs that it starts."""


def settle() -> None:
    """Count the cores that were asked for, and let jobs that leave the number of threads open take the tests' own.

    Call this before other modules import ``count_cores``.
    """
    if asked := int(os.environ.get(CORES, "0")):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:asked])
        _feign(asked)
    from train.step import runtime

    setattr(runtime, "count_cores", lambda: THREADS)  # noqa: B010 - mypy refuses an assignment


def count_processes() -> int:
    """Return how many processes shall run the fast tests: one a core, but four at most, and only as memory allows."""

    return max(1, min(4, cores.count_cores(), memory.read_free() // PROCESS_BYTES))


def _feign(asked: int) -> None:
    count = cores.count_cores

    @functools.wraps(count)
    def feign(proc: Path = cores.PROC) -> int:
        return asked if proc == cores.PROC else count(proc)

    cores.count_cores = feign


if __name__ == "__main__":
    print(count_processes())
