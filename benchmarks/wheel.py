"""Compares ``toolkit build-wheel`` with plain ``docker buildx build``: ``python -m benchmarks.wheel``.

Both build a small source tree (tests/fixtures/mini_tensorflow) with Debian's Bazel, by the same command, in each round:

* first build: with a base image that the engine does not know, so every stage runs and Bazel's caches are empty
* cold: the toolchain is built, Bazel's caches are empty
* one file changed: one kernel is compiled, linked and packed
* up to date, plan, refusal: the toolkit alone

The toolkit's own share is also measured within one run: the wall time without the time inside the docker command.
"""

import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from toolkit.base.naming import name_standin

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "wheel.json"
MINI = ROOT / "tests" / "fixtures" / "mini_tensorflow"
BASE = name_standin("3.11")
ROUNDS = {"first build": 3, "cold": 3, "one file changed": 5, "alone": 9}
TOOLKIT = [sys.executable, "-m", "toolkit", "build-wheel", "--bazel", "docker-image://toolkit/bazel:debian"]

SHIM = """\
#!/bin/sh
began=$(date +%s%3N)
{docker} "$@"
code=$?
echo $(($(date +%s%3N) - began)) >>{log}
exit $code
"""
"""A program that precedes docker in PATH and logs the milliseconds of each command."""


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Path(shutil.copytree(MINI, folder / "source"))
        self.kernel = self.source / "tensorflow/core/kernels/host.cc"
        self.text = self.kernel.read_text()
        self.log = folder / "docker.log"
        shim = folder / "bin" / "docker"
        shim.parent.mkdir()
        shim.write_text(SHIM.format(docker=shutil.which("docker"), log=self.log))
        shim.chmod(0o755)
        self.variables = {**os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}"}

    def change(self) -> None:
        self.kernel.write_text(f'{self.text}\nextern "C" int round_{uuid.uuid4().hex}() {{ return 1; }}\n')

    def toolkit(self, cache: str, base: str = BASE) -> list[str]:
        return [*TOOLKIT, "--source", str(self.source), "--cache", cache, "--base-image", base]

    def plain(self, cache: str, base: str = BASE) -> list[str]:
        printed = self.read([*self.toolkit(cache, base), "--dry-run", "--quiet"])
        return shlex.split(printed)

    @contextmanager
    def new_base(self) -> Iterator[str]:
        """Yield the name of a new base image, the usual one with a small file, for which no build is cached."""
        name = f"toolkit/bench:{uuid.uuid4().hex[:12]}"
        build = ["docker", "buildx", "build", "--quiet", "--load", "--tag", name, "-"]
        dockerfile = f"FROM {BASE}\nRUN echo {name} >/etc/round\n"
        subprocess.run(build, input=dockerfile, check=True, capture_output=True, text=True)
        try:
            yield name
        finally:
            subprocess.run(["docker", "image", "rm", name], check=True, capture_output=True)

    def time(self, argv: Sequence[str], *, code: int = 0) -> float:
        began = time.perf_counter()
        done = subprocess.run(
            argv, cwd=self.folder, env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        seconds = time.perf_counter() - began
        if done.returncode != code:
            raise SystemExit(done.stderr.decode())
        return seconds

    def take_docker_seconds(self) -> float:
        lines = self.log.read_text().split() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return sum(map(float, lines)) / 1000

    def read(self, argv: Sequence[str]) -> str:
        return subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout


def compare(bench: Bench) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)
        print(f"{name:<34} {value:7.2f} s", flush=True)

    def measure(kind: str, plain: list[str], toolkit: list[str]) -> None:
        note(f"{kind}: plain", bench.time(plain))
        bench.take_docker_seconds()
        whole = bench.time(toolkit)
        note(f"{kind}: toolkit", whole)
        note(f"{kind}: toolkit's own", whole - bench.take_docker_seconds())

    def new_cache() -> str:
        return f"bench-{uuid.uuid4().hex[:8]}"

    for _ in range(ROUNDS["first build"]):
        bench.change()
        with bench.new_base() as one, bench.new_base() as other:
            measure("first build", bench.plain(new_cache(), one), bench.toolkit(new_cache(), other))
    caches = {"plain": "", "toolkit": ""}
    for _ in range(ROUNDS["cold"]):
        bench.change()
        caches = {name: new_cache() for name in caches}
        measure("cold", bench.plain(caches["plain"]), bench.toolkit(caches["toolkit"]))
    for _ in range(ROUNDS["one file changed"]):
        bench.change()
        measure("one file changed", bench.plain(caches["plain"]), bench.toolkit(caches["toolkit"]))
    for _ in range(ROUNDS["alone"]):
        note("up to date", bench.time(bench.toolkit(caches["toolkit"])))
        note("plan", bench.time([*bench.toolkit(caches["toolkit"]), "--dry-run"]))
        note("refusal", bench.time([*TOOLKIT, "--cuda", "12.8.0", "--cudnn", "9.5.0"], code=3))
    return seconds


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seconds = compare(Bench(Path(folder)))
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    for name, value in medians.items():
        print(f"{name:<34} {value:7.3f} s (median of {len(seconds[name])})")
    machine = f"{platform.machine()}, {platform.python_version()}"
    RESULTS.write_text(json.dumps({"machine": machine, "seconds": medians, "rounds": seconds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
