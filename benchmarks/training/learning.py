"""Accuracy that a fixed number of steps reaches on CIFAR-10, by preset and memory mode, over seeds.

    python -m benchmarks.training.learning --data-dir DIR

Each run is a process of ``python -m train`` with one thread, several of them side by side; processor time is its own,
so other load on the machine costs patience, not fairness. A run that is in the results already is not run again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from benchmarks.training.figure import Curve, draw

HERE = Path(__file__).parent
SMOOTHING = 0.95


def train(name: str, options: dict[str, Any], seed: int, data: Path, runs: Path) -> dict[str, Any]:
    """One run: its accuracy, processor minutes and losses by step."""
    arguments = [text for key, value in options.items() for text in (f"--{key}", str(value))]
    places = ["--data-dir", str(data), "--out", str(runs)]
    process = subprocess.Popen(
        [sys.executable, "-m", "train", "cifar10", *arguments, f"--seed={seed}", *places, "--progress=quiet", "--json"],
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name}, seed {seed}: exit code {os.waitstatus_to_exitcode(status)}")
    manifest = json.loads(output)
    (folder,) = (path.parent for path in runs.glob("*/manifest.json") if is_run(path, manifest))
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        "row": name,
        "seed": seed,
        "accuracy": round(manifest["result"]["test_accuracy"], 4),
        "cpu_minutes": round((usage.ru_utime + usage.ru_stime) / 60, 1),
        "steps": manifest["result"]["steps"],
        "losses": [[entry["step"], round(entry["loss"], 4)] for entry in steps if entry["kind"] == "step"],
    }


def is_run(path: Path, manifest: dict[str, Any]) -> bool:
    """Whether this is the manifest of that run."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return bool(found.get("config_sha256") == manifest["config_sha256"])


def smooth(result: dict[str, Any]) -> Curve:
    """A run's losses as a running average."""
    value, losses = result["losses"][0][1], list[float]()
    for _, loss in result["losses"]:
        value = SMOOTHING * value + (1 - SMOOTHING) * loss
        losses.append(value)
    return Curve(result["row"], [step for step, _ in result["losses"]], losses)


def main() -> None:
    """Run what is missing, print the table, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True, help="a local copy of CIFAR-10")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "learning.json")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="parent of the run folders")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs side by side")
    options = parser.parse_args()
    table = yaml.safe_load((HERE / "learning.yaml").read_text(encoding="utf-8"))
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else []
    known = {(result["row"], result["seed"]) for result in results}

    def run(job: tuple[str, int]) -> None:
        name, seed = job
        settings = {**table["options"], **table["rows"][name]}
        results.append(train(name, settings, seed, options.data_dir.resolve(), options.runs.resolve()))
        results.sort(key=lambda result: (list(table["rows"]).index(result["row"]), result["seed"]))
        options.out.write_text(json.dumps(results) + "\n", encoding="utf-8")

    jobs = [(name, seed) for name in table["rows"] for seed in table["seeds"] if (name, seed) not in known]
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, jobs))
    for name in table["rows"]:
        mine = [result for result in results if result["row"] == name]
        accuracies = [100 * result["accuracy"] for result in mine]
        print(
            f"{name}: {mine[0]['steps']} steps, mean {statistics.mean(accuracies):.2f} % "
            f"({', '.join(f'{value:.2f}' for value in accuracies)}), "
            f"{statistics.mean(result['cpu_minutes'] for result in mine):.1f} minutes of one core"
        )
    draw(map(smooth, results), "training loss, smoothed", options.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
