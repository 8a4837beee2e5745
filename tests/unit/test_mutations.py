import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutations import run
from tests.mutations.run import Mutation

DEFECT = Mutation(
    name="a product is a power", file="sums.py", text="2 * x", replacement="x ** 3", test="test_sums.py::test_double"
)


def test_the_entries_fit_the_code() -> None:
    mutations = run.read()
    assert [f"{each.name}: {problem}" for each in mutations if (problem := each.find_problem())] == []
    assert [each.name for each in mutations if each.text == each.replacement] == []


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "sums.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "test_sums.py").write_text("from sums import double\n\ndef test_double():\n    assert double(2) == 4\n")
    subprocess.run(["git", "init", "--quiet", "."], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("defect", "problem"),
    [
        (DEFECT, ""),
        (replace(DEFECT, replacement="x ** 2"), "SURVIVED"),
        (replace(DEFECT, replacement="2 * ("), "cannot run"),
        (replace(DEFECT, text="3 * x"), "STALE"),
        (replace(DEFECT, test="test_sums.py::test_gone"), "does not pass without"),
    ],
)
def test_what_no_test_notices_is_reported(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Mutation, problem: str
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading plugins takes most of the time of this test
    found = run.run([defect], tmp_path / "copy", root=project)
    assert len(found) == bool(problem)
    assert all(problem in line for line in found)
    assert (project / "sums.py").read_text() == "def double(x):\n    return 2 * x\n"
