"""Compares fine-tuning with training from scratch on 1,000 images of CIFAR-10.

    python -m benchmarks.training.transfer --data-dir DIR --out DIR [--steps 20]

DIR has CIFAR-10 in Hugging Face's tables. The network to start from is trained on the other 49,000 training images. All
test on the 10,000 test images. ``--steps`` shortens each training, to see that the benchmark works.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from train.__main__ import start
from train.cli import parse

FEW, SEED, MODEL = 1000, 0, "bc-22-12"

BASE: Final = ("--epochs", "3", "--recipe", "quick")
SCRATCH: Final = ("--epochs", "60", "--recipe", "quick")
TUNED: Final = ("--epochs", "10", "--recipe", "quick", "--learning-rate", "0.02")


def split(source: Path, out: Path) -> tuple[Path, Path]:
    """Write two copies of the data set: one with `FEW` training images, as many of each class, one with the others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {name: sorted(source.rglob(f"{name}-*.parquet")) for name in ("train", "test")}
    if not all(files.values()):
        raise SystemExit(f"{source} has no tables train-*.parquet and test-*.parquet")
    train, test = (pa.concat_tables(map(pq.read_table, files[name])) for name in ("train", "test"))
    labels = train["label"].to_numpy()
    generator = np.random.default_rng(SEED)
    each = FEW // len(np.unique(labels))
    few = np.concatenate([generator.permutation(np.flatnonzero(labels == label))[:each] for label in np.unique(labels)])
    others = np.setdiff1d(np.arange(len(labels)), few)
    folders = out / "few", out / "others"
    for folder, chosen in zip(folders, (np.sort(few), others), strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(train.take(pa.array(chosen)), folder / "train-00000-of-00001.parquet")
        pq.write_table(test, folder / "test-00000-of-00001.parquet")
    return folders


def train(data: Path, out: Path, *options: str) -> tuple[Path, dict[str, Any]]:
    """Train, or find the finished run; returns its folder and the result in its manifest."""
    argv = ["cifar10", "--data-dir", str(data), "--model", MODEL, *options, "--out", str(out)]
    if start([*argv, "--progress", "plain"]):
        raise SystemExit(f"training failed: {' '.join(argv)}")
    folder = parse(argv).run_dir
    result: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["result"]
    return folder, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    short = ("--steps", str(options.steps)) if options.steps else ()
    few, others = split(options.data_dir, options.out / "data")
    base, found = train(others, options.out / "base", *BASE, *short)
    _, scratch = train(few, options.out / "scratch", *SCRATCH, *short)
    _, tuned = train(few, options.out / "tuned", *TUNED, *short, "--init-from", str(base))
    rows = {"base": found, "scratch": scratch, "tuned": tuned}
    report = {
        name: {"test_accuracy": each["test_accuracy"], "seconds": each["train_seconds"]} for name, each in rows.items()
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
