import subprocess
import sys
from pathlib import Path

import pytest

from toolkit import versions
from toolkit.project import ROOT

NEWEST = {".venv": 13, ".venv-dev": 12}
"""Newest Python 3 that each environment can have."""


@pytest.mark.parametrize(("folder", "minor"), [(".venv", 10), (".venv", 14), (".venv-dev", 10), (".venv-dev", 13)])
def test_a_python_that_the_locked_sets_do_not_fit_is_refused(tmp_path: Path, folder: str, minor: int) -> None:
    for name in ("Makefile", "pyproject.toml", "docker/requirements/toolkit.txt", "docker/requirements/dev.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c \"import sys; sys.version_info = (3, {minor}, 0)\n$2\"\n")
    python.chmod(0o755)
    argv = ["make", f"PYTHON={python}", f"{folder}/ready"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{folder} needs Python 3.11 to 3.{NEWEST[folder]}, and {python} is 3.{minor}" in done.stderr
    assert not (tmp_path / folder).exists()


def test_the_tests_need_a_python_that_the_default_tensorflow_has_a_wheel_for() -> None:
    table = versions.load_table()
    newest = max(int(name.partition(".")[2]) for name in table.tensorflow_rows["2.19.0"].python)
    assert newest == NEWEST[".venv-dev"]


def test_the_path_to_the_clone_is_relative() -> None:
    """Python reads it by the locale's encoding, which may lack letters of the path: no Python would start there."""
    if not (Path(sys.prefix) / "ready").exists():
        pytest.skip("the environment was not made by make")
    for file in Path(sys.prefix).glob("lib/python3*/site-packages/_tensorflow_toolkit.pth"):
        assert file.read_text() == "../../../..\n"
