"""Times how a second machine gets a wheel from a registry: ``python -m benchmarks.registry WHEEL``.

The wheel stands in for one that was built: its records are those of a small one, with its size and digest. The registry
is Debian's docker-registry in a container of this machine, with TLS and a login.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.integration.test_registry import Machines, connect, replace_wheel


def read(wheel: Path) -> Iterator[bytes]:
    with wheel.open("rb") as stream:
        while piece := stream.read(1 << 20):
            yield piece


def time_command(machines: Machines, machine: str, *words: str) -> float:
    began = time.monotonic()
    done = machines(machine, *words)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def measure(wheel: Path) -> None:
    with (
        tempfile.TemporaryDirectory() as root,
        connect(Path(root), lambda made: replace_wheel(made, read(wheel))) as machines,
    ):
        pushed = time_command(machines, "first", "push", f"dist/{machines.plan.name}", machines.where)
        print(f"{wheel.stat().st_size / 1e6:.0f} MB pushed in {pushed:.1f} s")
        for _ in range(3):
            seconds = time_command(machines, "second", *machines.take)
            print(f"pulled, with its signature and every digest checked, in {seconds:.1f} s")
            for place in ("dist", ".toolkit"):
                shutil.rmtree(machines.root / "second" / place)


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
