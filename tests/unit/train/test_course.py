"""Runs the notebooks of the course, all in this process, with the TensorFlow that it has loaded."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt

from tools import notebooks
from train.config.resolution import resolve
from train.report.plot import draw_model


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


def test_the_picture_of_the_course_is_what_a_run_draws(tmp_path: Path) -> None:
    draw_model(tmp_path / "model.png", resolve("digits"))
    drawn, shown = (plt.imread(path) for path in (tmp_path / "model.png", notebooks.COURSE / "model.png"))
    assert drawn.shape == shown.shape
    assert np.abs(drawn - shown).mean() < 0.01, "draw docs/course/model.png again by `draw_model`"
