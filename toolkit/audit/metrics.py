"""The metrics that a run left, and whether they agree with each other and with the result in its manifest."""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit.audit.record import RunRecord
from toolkit.findings import Finding, absent, check

CSV, LINES, CONFUSION = "metrics.csv", "metrics.jsonl", "confusion.csv"

Row = dict[str, float]


def read_epochs(folder: Path) -> list[Row]:
    """The epochs of a run, each with its numbers by name.

    Raises:
        OSError: the file is missing.
        ValueError: it is not one of a run.
    """
    with (folder / CSV).open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file, strict=True)]


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """What was recorded of steps and epochs, in order.

    Raises:
        OSError: the file is missing.
        ValueError: it is not one of a run.
    """
    return [json.loads(line) for line in (folder / LINES).read_text(encoding="utf-8").splitlines()]


def verify(record: RunRecord) -> Iterator[Finding]:
    """Findings ``metrics`` and ``confusion``."""
    for name, look, files in (("metrics", _check_epochs, (CSV, LINES)), ("confusion", _check_confusion, (CONFUSION,))):
        missing = [file for file in files if not (record.folder / file).exists()]
        if missing:
            yield absent(name, f"{', '.join(missing)} is not here")
            continue
        try:
            wrong, evidence = look(record)
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError) as error:
            wrong, evidence = f"cannot be read: {error}", ""
        yield check(name, not wrong, wrong or evidence)


def _check_epochs(record: RunRecord) -> tuple[str, str]:
    """What is wrong with the epochs, or nothing, and what they say."""
    rows, result = read_epochs(record.folder), record.result
    if [row["epoch"] for row in rows] != list(range(1, result["epochs"] + 1)):
        return f"{CSV} has {len(rows)} epochs, the manifest says {result['epochs']}", ""
    # With a validation split, the curves show that, and the test split is only for the end.
    watched = "validation" if "validation_accuracy" in result else "test"
    last = rows[-1]
    pairs = {
        "steps": (last["step"], result["steps"]),
        "accuracy": (last["test_accuracy"], result[f"{watched}_accuracy"]),
        "loss": (last["test_loss"], result[f"{watched}_loss"]),
        "seconds": (last["seconds"], result["train_seconds"]),
    }
    for name, (found, recorded) in pairs.items():
        if found != recorded:
            return f"{name} of the last epoch is {found} in {CSV}, {recorded} in the manifest", ""
    drawn = [{name: line[name] for name in rows[0]} for line in read_lines(record.folder) if line["kind"] == "epoch"]
    for row, line in zip(rows, drawn, strict=False):
        if row != line:
            return f"epoch {row['epoch']:.0f} of {CSV} is not that of {LINES}", ""
    if len(drawn) != len(rows):
        return f"{LINES} has {len(drawn)} epochs, {CSV} has {len(rows)}", ""
    return "", f"{len(rows)} epochs, {watched} accuracy {last['test_accuracy']:.2%} at the end, as in the manifest"


def _check_confusion(record: RunRecord) -> tuple[str, str]:
    """The confusion matrix counts the test split, so it gives the accuracy again, exactly."""
    with (record.folder / CONFUSION).open(encoding="utf-8", newline="") as file:
        counts = [[int(value) for value in row[1:]] for row in list(csv.reader(file))[1:]]
    right = [row[index] for index, row in enumerate(counts)]
    total = sum(map(sum, counts))
    recorded = record.result["test_accuracy"]
    if not math.isclose(sum(right) / total, recorded, rel_tol=1e-12):
        return f"{sum(right)} of {total} recognized, which is not the manifest's test accuracy {recorded}", ""
    shares = [value / sum(row) if sum(row) else None for value, row in zip(right, counts, strict=True)]
    if shares != record.result["per_class_accuracy"]:
        return "the accuracy of a class is not that of the manifest", ""
    return "", f"{sum(right)} of {total} recognized, as in the manifest"
