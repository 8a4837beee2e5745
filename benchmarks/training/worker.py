"""One candidate in one process: gets ready, then does one training step for each line it reads.

Started by ``run.py``; it answers on stdout in JSON, one line a step.
"""

import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


def read_rss() -> int:
    """Resident memory now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def read_peak() -> int:
    """Highest resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def answer(**values: Any) -> None:
    """Send one line to ``run.py``."""
    print(json.dumps(values), flush=True)


def main() -> None:
    """Import the framework, build the candidate, then step on request."""
    job = json.loads(sys.argv[1])
    peer = importlib.import_module(f"benchmarks.training.peers.{job['peer']}")
    peer.load(job["threads"])
    base = read_rss()
    step = peer.make_step(job)
    answer(event="ready", base=base)
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = step()
        answer(event="step", seconds=time.perf_counter() - began, loss=loss, peak=read_peak())


if __name__ == "__main__":
    main()
