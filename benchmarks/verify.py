"""Times `verify --trust` of a signed chain beside the hashing of its files: ``python -m benchmarks.verify [ROUNDS]``.

The chain: a run, an environment of the locked CPU set (of this Python's packages, by hard links), its smoke report, and
a wheel with its lock. The wheel is of 600 MB of random bytes, with the records of a small one. Verifying and hashing
alternate, each in a process of its own; of the second only the hashing is timed.
"""

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any
from unittest import mock

from packaging.utils import canonicalize_name

from tests.integration.test_registry import replace_wheel
from tests.unit.record import maker, signed
from toolkit import digest
from toolkit.artifacts.environment import read_packages
from toolkit.engine.host import REPORT

ROOT = Path(__file__).parent.parent
MEGABYTES = 600
HASH = """
import hashlib, json, os, sys, time
paths, began, used = json.load(sys.stdin), time.perf_counter(), time.process_time()
for path in paths:
    with open(path, "rb", buffering=0) as stream:
        hashlib.file_digest(stream, "sha256") if os.path.getsize(path) > 1 << 20 else hashlib.sha256(stream.read())
print(time.perf_counter() - began, time.process_time() - used)
"""
START = "import toolkit.cli.verify, toolkit.record.verification, toolkit.signing, rich.table"


def make(root: Path) -> signed.World:
    pieces = (os.urandom(10**6) for _ in range(MEGABYTES))
    trained = maker.train(root / "trained", draws=True, parent=maker.describe_environment(root / "trained"))
    world = signed.make(root / "world", trained, lambda wheel: replace_wheel(wheel, pieces))
    packages = world.environment / "venv/lib/python3.11/site-packages"
    shutil.rmtree(packages)
    found, versions = read_packages(Path(sys.prefix)), {}
    for name in re.findall(r"(?m)^([\w.-]+)==", maker.SPEC.locked.read_text()):
        package = found[canonicalize_name(name)]
        versions[name] = package.version
        for file in Distribution.at(package.info).files or ():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():  # two packages have bin/tensorboard
                os.link(package.info.parent / file, target)
    others = [{"metadata": {"name": name, "version": versions[name]}} for name in versions if name != "tensorflow-cpu"]
    maker.change_json(world.environment / REPORT, lambda value: value["install"].extend(others))
    with chdir(world.root):
        world.sign(world.environment, "builder")
    return world


def list_hashed(world: signed.World) -> list[str]:
    """Return each file that is hashed, as often as it is."""
    names: list[str] = []
    hash_file = digest.hash_file

    def note(path: Path | str) -> bytes:
        names.append(os.path.realpath(path))
        return hash_file(path)

    with mock.patch.object(digest, "hash_file", note), chdir(world.root):
        done = world.verify(world.run, "--strict")
    assert done.exit_code == 0, done.output
    return names


def measure(rounds: int) -> None:
    with tempfile.TemporaryDirectory(dir=Path(sys.prefix).parent) as folder:
        world = make(Path(folder))
        hashed = list_hashed(world)
        once = sorted(set(hashed))
        size = sum(Path(path).stat().st_size for path in once)
        argv = [sys.executable, "-m", "toolkit", "verify", str(world.run), "--trust", "policy.yaml", "--strict"]
        variables, seconds = {**os.environ, "PYTHONPATH": str(ROOT)}, []
        for _ in range(rounds):
            verified = time_process(argv, cwd=world.root, env=variables)
            done = subprocess.run(
                [sys.executable, "-c", HASH], input=json.dumps(once), stdout=-1, check=True, text=True
            )
            started = time_process([sys.executable, "-c", START], cwd=world.root, env=variables)
            seconds.append([*verified, *map(float, done.stdout.split()), *started])
    wall, cpu, wall_alone, cpu_alone, start, _ = (statistics.median(each) for each in zip(*seconds, strict=True))
    print(
        f"{len(once)} files of {size / 1e6:.0f} MB, {len(hashed)} times a file was hashed; medians of {rounds} rounds"
    )
    print(f"verified in {wall:.2f} s, hashed in {wall_alone:.2f}: {wall - wall_alone:.2f} s beside hashing")
    print(f"of it {start:.2f} s to start Python and load the command; {wall - wall_alone - start:.2f} s to verify")
    print(f"processor: {cpu:.2f} s, hashing {cpu_alone:.2f}: {cpu - cpu_alone:.2f} s beside hashing")


def time_process(argv: list[str], **options: Any) -> tuple[float, float]:
    """Return the seconds of a process, by the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True, **options)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    measure(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
