"""Runs the notebooks of the course, all in this process, with the TensorFlow that it has loaded."""

import json
import re
from pathlib import Path

import pytest

from tools import notebooks, site

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("path", notebooks.COURSE_NOTEBOOKS, ids=lambda path: path.stem)
def test_a_page_of_the_course_has_what_its_cells_print_and_draw(path: Path, tmp_path: Path) -> None:
    notebooks.show(path, tmp_path)
    site.collect(site.ROOT, tmp_path / "pages", tmp_path, "team/toolkit")
    page = tmp_path / "pages" / "docs" / "course" / f"{path.stem}.md"
    text = page.read_text()
    assert "``` {.text .output" in text
    pictures = re.findall(r"!\[.{10,}\]\((.+\.png)\)", text)
    assert pictures
    assert all((page.parent / name).stat().st_size > 5_000 for name in pictures)
    assert (
        f"[Open in Colab](https://colab.research.google.com/github/team/toolkit/blob/main/docs/course/{path.name})"
        in text
    )
    assert "%pip install --quiet git+https://github.com/team/toolkit\n" in text


def test_a_cell_that_fails_ends_the_making_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": ["print(1)\n", "1 / 0"]}]}))
    monkeypatch.setattr(notebooks, "COURSE_NOTEBOOKS", [path])
    monkeypatch.setattr(site, "SHOWN", tmp_path / "shown")
    for _ in range(2):
        assert site.main("collect") == 7
        assert "broken.ipynb, cell 1: ZeroDivisionError" in capsys.readouterr().err
