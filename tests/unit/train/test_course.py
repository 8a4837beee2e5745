"""Runs the notebooks of the course, all in this process, with the TensorFlow that it has loaded."""

import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from tests import notebooks
from train.config.resolution import resolve
from train.report.plot import draw_model


def write(folder: Path, *cells: tuple[str, str]) -> Path:
    path = folder / "small.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": kind, "source": [text]} for kind, text in cells]}))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("path", notebooks.COURSE_NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_of_the_course_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    try:
        notebooks.run(path)
    finally:
        plt.close("all")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([("markdown", "# A"), ("code", "one = 1"), ("code", "assert one == 2, 'no'")], "cell 3: AssertionError: no"),
        ([("code", "import math"), ("code", "math.sqare(2)")], "cell 2: AttributeError: module 'math'"),
        ([("code", "one = (")], "cell 1: SyntaxError"),
    ],
)
def test_a_broken_cell_is_named_with_its_notebook(cells: Sequence[tuple[str, str]], said: str, tmp_path: Path) -> None:
    with pytest.raises(notebooks.CellError) as caught:
        notebooks.run(write(tmp_path, *cells))
    assert str(caught.value).startswith(f"small.ipynb, {said}")


def test_a_notebook_begins_without_the_names_of_another(tmp_path: Path) -> None:
    assert notebooks.run(write(tmp_path, ("code", "one = 1")))["one"] == 1
    with pytest.raises(notebooks.CellError, match="NameError: name 'one'"):
        notebooks.run(write(tmp_path, ("code", "print(one)")))


def test_the_picture_of_the_course_is_what_a_run_draws(tmp_path: Path) -> None:
    draw_model(tmp_path / "model.png", resolve("digits"))
    drawn, shown = (plt.imread(path) for path in (tmp_path / "model.png", notebooks.COURSE / "model.png"))
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.01, "draw docs/course/model.png again by `draw_model`"
