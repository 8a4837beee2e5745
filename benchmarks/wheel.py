"""What ``toolkit build-wheel`` costs beside plain ``docker buildx build``: ``python -m benchmarks.wheel``.

Both build the stand-in's source tree (tests/fixtures/mini_tensorflow) with Debian's Bazel, by the very same command,
each with caches of its own. The rounds are interleaved, so that noise hits both alike, and medians are compared:

* cold: caches that nobody has used
* one file changed: one kernel is compiled, linked and packed
* up to date, plan, refusal: the toolkit alone
"""

import json
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "wheel.json"
MINI = ROOT / "tests" / "fixtures" / "mini_tensorflow"
ROUNDS = {"cold": 3, "one file changed": 5, "alone": 9}
TOOLKIT = [sys.executable, "-m", "toolkit", "build-wheel", "--bazel", "docker-image://toolkit/bazel:debian"]


class Bench:
    """A folder with a source tree; what is timed runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = Path(shutil.copytree(MINI, folder / "source"))
        self.kernel = self.source / "tensorflow/core/kernels/host.cc"
        self.text = self.kernel.read_text()

    def change(self) -> None:
        """Make the kernel unlike any before: another object, so that linking and packing follow."""
        self.kernel.write_text(f'{self.text}\nextern "C" int round_{uuid.uuid4().hex}() {{ return 1; }}\n')

    def toolkit(self, cache: str) -> list[str]:
        """Our command."""
        return [*TOOLKIT, "--source", str(self.source), "--cache", cache]

    def plain(self, cache: str) -> list[str]:
        """The command that ours comes down to, as its dry run prints it."""
        printed = self.read([*self.toolkit(cache), "--dry-run", "--quiet"])
        return shlex.split(printed)

    def time(self, argv: Sequence[str], *, code: int = 0) -> float:
        """Wall seconds."""
        began = time.perf_counter()
        done = subprocess.run(argv, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        seconds = time.perf_counter() - began
        if done.returncode != code:
            raise SystemExit(done.stderr.decode())
        return seconds

    def read(self, argv: Sequence[str]) -> str:
        """Standard output."""
        return subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, text=True).stdout


def compare(bench: Bench) -> dict[str, list[float]]:
    """Seconds of each command in each round."""
    seconds: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        seconds.setdefault(name, []).append(value)
        print(f"{name:<28} {value:7.2f} s", flush=True)

    caches = {}
    for _ in range(ROUNDS["cold"]):
        bench.change()
        caches = {name: f"bench-{uuid.uuid4().hex[:8]}" for name in ("plain", "toolkit")}
        note("cold: plain", bench.time(bench.plain(caches["plain"])))
        note("cold: toolkit", bench.time(bench.toolkit(caches["toolkit"])))
    for _ in range(ROUNDS["one file changed"]):
        bench.change()
        note("one file changed: plain", bench.time(bench.plain(caches["plain"])))
        note("one file changed: toolkit", bench.time(bench.toolkit(caches["toolkit"])))
    for _ in range(ROUNDS["alone"]):
        note("up to date", bench.time(bench.toolkit(caches["toolkit"])))
        note("plan", bench.time([*bench.toolkit(caches["toolkit"]), "--dry-run"]))
        note("refusal", bench.time([*TOOLKIT, "--cuda", "12.8.0", "--cudnn", "9.5.0"], code=3))
    return seconds


def main() -> None:
    """Measure, print a table, keep the medians."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = compare(Bench(Path(folder)))
    medians = {name: round(statistics.median(values), 3) for name, values in seconds.items()}
    for name, value in medians.items():
        print(f"{name:<28} {value:7.3f} s (median of {len(seconds[name])})")
    machine = f"{platform.machine()}, {platform.python_version()}"
    RESULTS.write_text(json.dumps({"machine": machine, "seconds": medians, "rounds": seconds}, indent=2) + "\n")


if __name__ == "__main__":
    main()
