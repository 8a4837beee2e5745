"""Compares the accuracy that a fixed number of steps reaches on CIFAR-10, by preset and memory mode, over seeds.

    python -m benchmarks.training.learning --data-dir DIR

Each run is a process with one thread, and its time is processor time. Runs that are in the results are skipped.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from train.cli import parse
from train.record.reader import read_lines

HERE = Path(__file__).parent
SMOOTHING = 0.95


class Curve(NamedTuple):
    name: str
    steps: Sequence[int]
    losses: Sequence[float]


def draw(curves: Iterable[Curve], label: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    colors: dict[str, str] = {}
    for curve in curves:
        named = curve.name in colors
        color = colors.setdefault(curve.name, f"C{len(colors)}")
        axes.plot(curve.steps, curve.losses, color=color, linewidth=1, label=None if named else curve.name)
    axes.set_xlabel("step (64 images each)")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=100)


def train(name: str, options: dict[str, Any], seed: int, data: Path, runs: Path) -> dict[str, Any]:
    arguments = ["cifar10", *(f"--{key}={value}" for key, value in options.items()), f"--seed={seed}"]
    arguments += [f"--data-dir={data}", f"--out={runs}", "--progress=quiet", "--json"]
    command = [sys.executable, "-m", "train", *arguments]
    process = subprocess.Popen(command, cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{name}, seed {seed}: exit code {os.waitstatus_to_exitcode(status)}")
    manifest = json.loads(output)
    steps = read_lines(parse(arguments).run_dir)
    return {
        "row": name,
        "seed": seed,
        "accuracy": round(manifest["result"]["test_accuracy"], 4),
        "cpu_minutes": round((usage.ru_utime + usage.ru_stime) / 60, 1),
        "steps": manifest["result"]["steps"],
        "losses": [[entry["step"], round(entry["loss"], 4)] for entry in steps if entry["kind"] == "step"],
    }


def smooth(result: dict[str, Any]) -> Curve:
    value, losses = result["losses"][0][1], list[float]()
    for _, loss in result["losses"]:
        value = SMOOTHING * value + (1 - SMOOTHING) * loss
        losses.append(value)
    return Curve(result["row"], [step for step, _ in result["losses"]], losses)


def main() -> None:
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
