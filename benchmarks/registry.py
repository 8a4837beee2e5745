"""Times how a second machine gets a wheel from a registry: ``python -m benchmarks.registry WHEEL``.

The wheel stands in for one that was built: its records are those of a small one, with its size and digest. The registry
is Debian's docker-registry in a container of this machine, with TLS and a login.
"""

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.integration.test_registry import Machines, connect
from tests.unit.record.maker import change_json
from toolkit import digest, manifest
from toolkit.wheel import folder


def replace(wheel: Path, made: Path) -> None:
    """Put another wheel into a folder, and its digest into the records that a download reads."""
    place = folder.find_wheel(made)
    shutil.copyfile(wheel, place)
    facts = {"file": place.name, "bytes": place.stat().st_size}
    value = digest.read_file(place)
    change_json(made / manifest.FILE, lambda record: record.update(digest=value))
    change_json(made / manifest.FILE, lambda record: record["facts"]["inspection"].update(facts))
    folder.write_sums(made)


def time_command(machines: Machines, machine: str, *words: str) -> float:
    began = time.monotonic()
    done = machines(machine, *words)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def measure(wheel: Path) -> None:
    with tempfile.TemporaryDirectory() as root, connect(Path(root), partial(replace, wheel)) as machines:
        pushed = time_command(machines, "first", "push", f"dist/{machines.plan.name}", machines.where)
        print(f"{wheel.stat().st_size / 1e6:.0f} MB pushed in {pushed:.1f} s")
        for _ in range(3):
            seconds = time_command(machines, "second", *machines.take)
            print(f"pulled, with its signature and every digest checked, in {seconds:.1f} s")
            for place in ("dist", ".toolkit"):
                shutil.rmtree(machines.root / "second" / place)


if __name__ == "__main__":
    measure(Path(sys.argv[1]))
