"""Confirms the training job on a machine with a GPU: ``python benchmarks/confirm.py``.

For each data set and memory mode it trains twice, interrupts and resumes a run, and compares the digests of the
weights. It compares a profiled step with a rehearsal. It writes ``report.json`` and ``report.md``, and ends with exit
code 7 if a comparison fails.
"""

import argparse
import csv
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

MODES: Final = ("plain", "recompute", "shared")
PROFILED: Final = (6, 8)
"""First and last step of the profile. Earlier steps build graphs and choose algorithms."""

TOOLKIT: Final = [sys.executable, "-m", "toolkit"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The commands that train and rehearse (empty: no rehearsal), and the folder of the runs and the report."""

    train: list[str]
    rehearse: list[str]
    options: list[str]
    steps: int
    out: Path
    gpu: bool = False


@dataclass(frozen=True)
class Row:
    """The results of one data set and memory mode."""

    dataset: str
    memory: str
    device: str
    digests: dict[str, str]
    speed: float  # images per second of the second run
    seen: dict[str, float]  # events on the device in a step, by kind
    peak: int = 0  # in bytes
    rehearsed: dict[str, int] = field(default_factory=dict)
    on_gpu: bool = False

    @property
    def is_same(self) -> bool:
        return len(set(self.digests.values())) == 1

    @property
    def holds(self) -> bool:
        """Whether the weights are the same, a run that should use a GPU did, and the rehearsal agrees."""
        return self.is_same and (not self.on_gpu or self.seen.get("kernel", 0) > 0) and not self.list_misses()

    def list_misses(self) -> list[str]:
        """List how a GPU differed from the rehearsal: fewer kernels, other copies, or a lower peak."""
        if not self.seen or not self.rehearsed:
            return []
        least = self.rehearsed["launches"] + self.rehearsed["library_calls"]
        misses = []
        if self.seen.get("kernel", 0) < least:
            misses.append(f"{self.seen.get('kernel', 0):.0f} kernels in a step, at least {least} were rehearsed")
        for kind, name in (("MemcpyH2D", "to_device"), ("MemcpyD2H", "to_host")):
            count = self.seen.get(kind, 0)
            if round(count) != self.rehearsed[name]:
                misses.append(f"{count:.1f} copies {name.replace('_', ' ')} in a step, not {self.rehearsed[name]}")
        if self.peak < self.rehearsed["peak"]:
            misses.append(f"a peak of {self.peak:,} bytes, at least {self.rehearsed['peak']:,} were rehearsed")
        return misses


def train(plan: Plan, dataset: str, memory: str, name: str, *options: str) -> tuple[dict[str, Any], Path]:
    command, out = make_command(plan, dataset, memory, name, *options)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(command)}\n  ended with exit code {done.returncode}")
    manifest: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    (folder,) = (path.parent for path in out.glob("*/manifest.json"))
    return manifest, folder


def make_command(plan: Plan, dataset: str, memory: str, name: str, *options: str) -> tuple[list[str], Path]:
    out = plan.out / f"{dataset}-{memory}-{name}"
    steps = ["--steps", str(plan.steps), "--checkpoint-every", "2"]
    return [*plan.train, dataset, "--memory", memory, *steps, *plan.options, "--out", str(out), "--json", *options], out


def interrupt(plan: Plan, dataset: str, memory: str) -> bool:
    command, out = make_command(plan, dataset, memory, "resumed")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(out.glob("*/checkpoints/*")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        return process.wait() == 130


def confirm(plan: Plan, dataset: str, memory: str) -> Row:
    first, _ = train(plan, dataset, memory, "first")
    profile = f"{PROFILED[0]}:{PROFILED[1]}"
    second, folder = train(plan, dataset, memory, "second", "--profile", profile)
    interrupted = interrupt(plan, dataset, memory)
    resumed, _ = train(plan, dataset, memory, "resumed")
    digests = {"first": first["weights_sha256"], "second": second["weights_sha256"]}
    digests["resumed" if interrupted else "third"] = resumed["weights_sha256"]
    return Row(
        dataset=dataset,
        memory=memory,
        device=", ".join(second["hardware"]["devices"]),
        digests=digests,
        speed=read_speed(folder / "metrics.csv"),
        seen=count_events(folder),
        peak=second["result"].get("device_peak_bytes", 0),
        rehearsed=rehearse(plan, dataset, memory),
        on_gpu=plan.gpu,
    )


def rehearse(plan: Plan, dataset: str, memory: str) -> dict[str, int]:
    """Return the counts of the last rehearsed step, and the peak in bytes, whether there are findings or not."""
    if not plan.rehearse:
        return {}
    command = [*plan.rehearse, dataset, "--memory", memory, *plan.options, "--json", "--no-find-batch"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in {0, 7}:
        raise SystemExit(f"{shlex.join(command)}\n  ended with exit code {done.returncode}")
    report = json.loads(done.stdout)
    if not report["steps"]:
        raise SystemExit(f"{shlex.join(command)}\n  came to no step: {report['findings']}")
    step = report["steps"][-1]
    return {
        "launches": step["launched"],
        "library_calls": step["library_calls"],
        "to_device": sum(step["copies"]["to device"].values()),
        "to_host": sum(step["copies"]["to host"].values()),
        "peak": max(report["allocator_peak_bytes"], report["job_peak_bytes"] or 0),
        "findings": len(report["findings"]),
    }


def read_speed(path: Path) -> float:
    with path.open(encoding="utf-8", newline="") as file:
        return float(list(csv.DictReader(file))[-1]["images_per_second"])


def count_events(folder: Path) -> dict[str, float]:
    """Return the number of events on the GPU's streams in a profiled step, by kind: kernels, fills, and copies."""
    counts: dict[str, int] = {}
    for path in folder.rglob("*.xplane.pb"):
        for plane in (value for number, value in read_fields(path.read_bytes()) if number == 1):
            for name in list_device_events(plane):
                kind = next(
                    (kind for kind in ("MemcpyH2D", "MemcpyD2H", "MemcpyD2D", "Memset") if kind in name), "kernel"
                )
                counts[kind] = counts.get(kind, 0) + 1
    return {kind: count / (PROFILED[1] - PROFILED[0] + 1) for kind, count in sorted(counts.items())}


def list_device_events(plane: bytes) -> Iterator[str]:
    """Yield the names of the events on the streams of a plane, if it is that of a GPU (xplane.proto of TSL)."""
    fields = list(read_fields(plane))
    if not any(number == 2 and value.startswith(b"/device:GPU") for number, value in fields):
        return
    names: dict[int, str] = {}
    for entry in (dict(read_fields(value)) for number, value in fields if number == 4):
        metadata = dict(read_fields(entry.get(2, b"")))
        names[int.from_bytes(entry.get(1, b""), "little")] = metadata.get(2, b"").decode(errors="replace")
    for line in (list(read_fields(value)) for number, value in fields if number == 3):
        if any(number == 2 and value.startswith(b"Stream") for number, value in line):
            for event in (dict(read_fields(value)) for number, value in line if number == 4):
                yield names.get(int.from_bytes(event.get(1, b""), "little"), "")


def read_fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the value of each field of a protocol buffer. Integers are eight bytes, little-endian."""
    place = 0

    def read_number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = read_number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, (read_number() & (2**64 - 1)).to_bytes(8, "little")
            continue
        size = read_number() if kind == 2 else {1: 8, 5: 4}[kind]
        yield key >> 3, message[place : place + size]
        place += size


def write_report(out: Path, rows: list[Row]) -> None:
    value = [{**asdict(row), "holds": row.holds, "misses": row.list_misses()} for row in rows]
    (out / "report.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    lines = [
        "| data set | memory | device | images/s | same weights | on the device in a step | peak MiB | rehearsed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        seen = ", ".join(f"{kind} {count:.0f}" for kind, count in row.seen.items()) or (
            "NOTHING" if row.on_gpu else "-"
        )
        counted = ", ".join(
            f"peak {number / 2**20:.0f} MiB" if name == "peak" else f"{name.replace('_', ' ')} {number}"
            for name, number in row.rehearsed.items()
        )
        peak = f"{row.peak / 2**20:.0f}" if row.peak else "-"
        same = f"yes ({len(row.digests)} runs)" if row.is_same else "NO"
        cells = (row.dataset, row.memory, row.device, f"{row.speed:.0f}", same, seen, peak, counted or "-")
        lines.append(f"| {' | '.join(cells)} |")
    misses = [f"- {row.dataset}, {row.memory}: {miss}" for row in rows for miss in row.list_misses()]
    lines += ["", "Not as rehearsed:", "", *misses] if misses else []
    (out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("datasets", nargs="*", default=["digits", "cifar100"])
    parser.add_argument("--train", default=shlex.join([*TOOLKIT, "train"]), help="command that trains")
    parser.add_argument(
        "--rehearse",
        default=shlex.join([*TOOLKIT, "rehearse", "--engine", "host"]),
        help="command that rehearses, or empty",
    )
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--options", default="", help="further options of each run, in one word")
    parser.add_argument("--gpu", action="store_true", help="fail where nothing runs on a GPU")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    given = parser.parse_args()
    if given.steps <= PROFILED[1]:
        parser.error(f"--steps must be more than {PROFILED[1]}, the last step of the profile")
    if given.out.exists():
        shutil.rmtree(given.out)  # otherwise a finished run would not run again
    given.out.mkdir(parents=True)
    plan = Plan(
        train=shlex.split(given.train),
        rehearse=shlex.split(given.rehearse),
        options=shlex.split(given.options),
        steps=given.steps,
        out=given.out,
        gpu=given.gpu,
    )
    rows: list[Row] = []
    for dataset in given.datasets:
        for memory in given.modes:
            rows.append(confirm(plan, dataset, memory))  # write a report after each, in case the next fails
            write_report(plan.out, rows)
    print((plan.out / "report.md").read_text(encoding="utf-8"), end="")
    return 0 if all(row.holds for row in rows) else 7


if __name__ == "__main__":
    raise SystemExit(main())
