"""Runs the notebooks of the course, all in this process, with the TensorFlow that it has loaded."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from tools import notebooks


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
