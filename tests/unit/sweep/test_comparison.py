import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from toolkit.sweep import read_reason
from train.cli import parse
from train.record.metrics import EpochRecord
from train.record.reader import Run
from train.use.compare import draw, group_runs, render, tabulate

SHARE = st.floats(0, 1)


@given(st.lists(st.tuples(SHARE, st.floats(0, 100), st.floats(0, 1e6)), min_size=1, max_size=6))
def test_the_numbers_are_those_of_numpy(values: list[tuple[float, float, float]]) -> None:
    names = ("test_accuracy", "test_loss", "train_seconds")
    runs = {f"run-{number}": dict(zip(names, value, strict=True)) for number, value in enumerate(values)}
    (row,) = tabulate({"all": runs})
    for column, name in enumerate(names):
        numbers = np.array([value[column] for value in values])
        assert math.isclose(row[f"{name}_mean"], numbers.mean(), rel_tol=1e-12, abs_tol=1e-300)
        deviation = row[f"{name}_deviation"]
        if len(values) == 1:
            assert deviation is None
        else:
            assert math.isclose(deviation, numbers.std(ddof=1), rel_tol=1e-9, abs_tol=1e-9)
    best = int(np.argmax([value[0] for value in values]))
    assert row["best"] == f"run-{best}"
    assert row["test_loss_best"] == values[best][1]


def test_images_held_out_choose_the_best_and_the_table_says_so() -> None:
    def result(validation: float, test: float) -> dict[str, float]:
        return {"validation_accuracy": validation, "test_accuracy": test, "test_loss": 1.0, "train_seconds": 2.0}

    rows = tabulate({"seed": {"a": result(0.9, 0.7), "b": result(0.8, 0.99)}, "other": {"c": result(0.95, 0.1)}})
    assert [row["best"] for row in rows] == ["a", "c"]
    text = render(rows)
    assert text.splitlines()[0].split("  ")[-1] == "best validation accuracy"
    assert "85.00% ± 7.07%" in text
    assert text.endswith("best by its mean validation accuracy: other")


def run(*options: str, epochs: int = 3) -> Run:
    record = EpochRecord(**dict.fromkeys(EpochRecord.__dataclass_fields__, 0.5))  # type: ignore[arg-type]
    seed = int(parse(["digits", *options]).seed)
    lines = [replace(record, epoch=each, train_loss=each + seed / 10) for each in range(1, epochs + 1)]
    return Run(parse(["digits", *options]), lines)


def test_runs_that_differ_in_their_seeds_alone_are_one_curve_with_a_band(tmp_path: Path) -> None:
    runs = [
        run("--seed", str(seed), "--epochs", count, epochs=int(count)) for seed in (0, 1, 2) for count in ("3", "5")
    ]
    runs.append(run("--epochs", "7"))
    groups = group_runs(runs, band=True)
    assert {label: len(group) for label, group in groups.items()} == {"epochs 3": 3, "epochs 5": 3, "epochs 7": 1}
    drawn: list[Figure] = []
    with mock.patch.object(Figure, "savefig", lambda figure, file, **_: drawn.append(figure)):
        draw(groups, tmp_path / "x.png")
    axes = drawn[0].axes[0]
    bands = [each for each in axes.collections if isinstance(each, PolyCollection)]
    assert len(axes.lines) == 3
    assert len(bands) == 2, "one run has no band"
    assert np.allclose(axes.lines[0].get_ydata(), [1.1, 2.1, 3.1])
    edges = bands[0].get_paths()[0].vertices
    assert np.isclose(edges[:, 1].min(), 1.0)
    assert np.isclose(edges[:, 1].max(), 3.2)


def test_without_a_band_each_run_is_a_curve() -> None:
    runs = [run("--seed", "0"), run("--seed", "1"), run("--seed", "1")]
    assert list(group_runs(runs, band=False)) == ["seed 0", "seed 1", "seed 1 (run 3)"]
    assert list(group_runs(runs[:1], band=True)) == ["all runs"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("epoch 1\nerror: the loss is nan\n  why: the rate\n  try: less\n", "the loss is nan: the rate"),
        ("error: first\nerror: second\n  try: again\n", "second"),
        ("Traceback\nKeyError: 'x'\n\n", "KeyError: 'x'"),
        ("", "it said nothing"),
    ],
)
def test_the_reason_is_the_last_error_of_a_log(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "log").write_text(text)
    assert read_reason(tmp_path / "log") == reason


def test_a_log_that_is_missing_has_no_reason(tmp_path: Path) -> None:
    found: Any = read_reason(tmp_path / "log")
    assert found == "it said nothing"
