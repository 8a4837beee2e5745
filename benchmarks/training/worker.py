import importlib
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any


def answer(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    job = json.loads(sys.argv[1])
    peer = importlib.import_module(f"benchmarks.training.peers.{job['peer']}")
    peer.load(job["threads"])
    base = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    step = peer.make_step(job)
    answer(base=base)
    for _ in sys.stdin:
        began = time.perf_counter()
        loss = step()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answer(seconds=time.perf_counter() - began, loss=loss, peak=peak)


if __name__ == "__main__":
    main()
