import ctypes
import multiprocessing
import threading
from pathlib import Path

import pytest

from tests.makers.control_groups import V2, make, write
from train.system import memory

GIB = 1 << 30
V1 = "78 77 0:29 /docker/x {} ro,nosuid - cgroup cgroup rw,memory"
CASES = {
    "no limit": ("0::/\n", V2, {"memory.max": "max\n", "memory.current": "1\n"}, 16, 8),
    "a container": ("0::/\n", V2, {"memory.max": f"{4 * GIB}\n", "memory.current": f"{GIB}\n"}, 4, 3),
    "a job of a scheduler": (
        "0::/slurm/job_1/step_0\n",
        V2,
        {"slurm/job_1/memory.max": f"{2 * GIB}\n", "slurm/job_1/memory.current": f"{GIB}\n"},
        2,
        1,
    ),
    "version 1": (
        "4:memory:/docker/x\n1:cpu:/y\n",
        V1,
        {"memory.limit_in_bytes": f"{3 * GIB}\n", "memory.usage_in_bytes": f"{GIB}\n"},
        3,
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_memory_is_that_of_the_machine_or_of_a_group_around_the_process(case: str, tmp_path: Path) -> None:
    cgroup, mount, files, total, free = CASES[case]
    proc = make(tmp_path, cgroup, mount, files)
    meminfo = write(tmp_path, {"meminfo": f"MemTotal: {16 << 20} kB\nMemAvailable: {8 << 20} kB\n"}) / "meminfo"
    assert memory.read_total(meminfo, proc) == total * GIB
    assert memory.read_free(meminfo, proc) == free * GIB


def _use_a_large_block(keeps: bool, blocks: "multiprocessing.SimpleQueue[int]") -> None:
    if keeps:
        memory.keep_freed()
    library, size = ctypes.CDLL(None), 100 << 20
    library.malloc.restype = ctypes.c_void_p
    library.free.argtypes = [ctypes.c_void_p]

    def take() -> None:
        block = library.malloc(size)
        ctypes.memset(block, 1, size)
        library.free(block)

    before = memory.read_resident()
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    blocks.put(memory.read_resident() - before)


@pytest.mark.parametrize("keeps", [False, True])
def test_large_blocks_are_kept_for_the_next_step(keeps: bool) -> None:
    context = multiprocessing.get_context("spawn")
    blocks = context.SimpleQueue()
    process = context.Process(target=_use_a_large_block, args=(keeps, blocks))
    process.start()
    kept = blocks.get()
    process.join()
    assert (kept > 90 << 20) == keeps
