"""Compares candidates: each in its own fresh process, their steps interleaved, medians reported.

    python benchmarks/training/run.py SUITE --torch-python VENV/bin/python --out results.json

Memory is the peak resident memory minus the resident memory after the import of the framework. Seconds of the
processor count all threads, and say more than the others where the machine has other work.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


class Candidate:
    def __init__(self, name: str, job: dict[str, Any], python: str) -> None:
        self.name, self.job, self.steps = name, job, list[dict[str, Any]]()
        self.process = subprocess.Popen(
            [*job.get("under", ()), python, "-m", "benchmarks.training.worker", json.dumps(job)],
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": str(job["threads"]),
                "PYTHONPATH": str(ROOT),
                **job.get("variables", {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.base = int(self.read()["base"])

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} died with exit code {self.process.wait()}")
        value: dict[str, Any] = json.loads(line)
        return value

    def ask(self, what: str) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        return self.read()

    def step(self) -> None:
        self.steps.append(self.ask("step"))

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def summarize(self) -> dict[str, Any]:
        seconds, processor = ([step[name] for step in self.steps[1:]] for name in ("seconds", "processor"))
        batch = self.job["batch"]
        return {
            "name": self.name,
            "batch": batch,
            "depth": self.job.get("depth", 100),
            "images_per_second": round(batch / statistics.median(seconds), 1),
            "best": round(batch / min(seconds), 1),
            "images_per_processor_second": round(batch / statistics.median(processor), 1),
            "first_step_seconds": round(self.steps[0]["seconds"], 1),
            "memory_mb": round((self.steps[-1]["peak"] - self.base) / 1e6),
            "peak_mb": round(self.steps[-1]["peak"] / 1e6),
            "steps": len(seconds),
        }


def choose_python(job: dict[str, Any], torch_python: str) -> str:
    """Return the interpreter of a candidate; an empty text for one of PyTorch if there is none."""
    return torch_python if job["peer"].startswith("torch") else sys.executable


def run_group(candidates: dict[str, dict[str, Any]], common: dict[str, Any], options: argparse.Namespace) -> list[Any]:
    started: list[Candidate] = []
    try:
        for name, job in candidates.items():
            python = choose_python(job, options.torch_python)
            if not python:
                print(f"left out, needs --torch-python: {name}", file=sys.stderr)
                continue
            started.append(Candidate(name, {"threads": options.threads, **common, **job}, python))
            started[-1].step()
        for _ in range(options.rounds):
            for candidate in started:
                candidate.step()
    finally:
        for candidate in started:
            candidate.close()
    return [candidate.summarize() for candidate in started]


def measure_peaks(threads: int) -> dict[str, Any]:
    """Return the processor and its speed of large products in GFLOP/s, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.training.peaks", str(threads)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    value: dict[str, Any] = json.loads(done.stdout)
    print(done.stdout, end="", flush=True)
    return value


def main() -> None:
    suites = yaml.safe_load((Path(__file__).parent / "suites.yaml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite", choices=suites)
    parser.add_argument("--torch-python", default="", help="Python with PyTorch; without one its rows are left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {"suite": options.suite, "threads": options.threads, "groups": []}
    results["before"] = measure_peaks(options.threads)
    for group in suites[options.suite]:
        before = os.getloadavg()[0]
        rows = run_group(group["candidates"], group["common"], options)
        results["groups"].append(
            {
                "common": group["common"],
                "load_before": round(before, 2),
                "load_after": round(os.getloadavg()[0], 2),
                "when": time.strftime("%Y-%m-%d %H:%M"),
                "rows": rows,
            }
        )
        for row in rows:
            print(json.dumps(row), flush=True)
    results["after"] = measure_peaks(options.threads)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
