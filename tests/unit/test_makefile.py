import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkit.base.project import ROOT

NEWEST = {".venv": 13, ".venv-dev": 12}
"""Newest Python 3 that each environment can have."""


@pytest.mark.parametrize(("folder", "minor"), [(".venv", 14), (".venv-dev", 10)])
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


STAND_IN = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
touch "$4/lib/python3.11/site-packages/_tensorflow_toolkit.pth"
cp "$0" "$4/bin/python"
cp "$0" "$4/bin/uv"
echo "$PWD/$4" >"$4/bin/activate"
"""
"""A Python that makes only what an environment needs to name its folder."""


def _clone(folder: Path) -> Path:
    for name in ("docker/requirements/toolkit.txt", "docker/requirements/dev.txt", "docker/requirements/uv.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "pyproject.toml").touch()
    shutil.copy(ROOT / "Makefile", folder)
    return folder


def _make(clone: Path, target: str, python: Path) -> str:
    argv = ["make", f"PYTHON={python}", target]
    return subprocess.run(argv, cwd=clone, capture_output=True, text=True, check=True).stdout


def _names(folder: Path, text: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if os.fsencode(text) in path.read_bytes()]


@pytest.mark.parametrize("folder", [".venv", ".venv-dev"])
@pytest.mark.parametrize("take", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_an_environment_of_a_copied_or_moved_clone_is_made_again(tmp_path: Path, folder: str, take: Any) -> None:
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    clone, marker = _clone(tmp_path / "a clone"), f"{folder}/ready"
    assert "preparing" in _make(clone, marker, python)
    assert "preparing" not in _make(clone, marker, python)
    take(clone, tmp_path / "other")
    assert "preparing" in _make(tmp_path / "other", marker, python)
    assert not _names(tmp_path / "other" / folder, clone)
    assert "preparing" not in _make(tmp_path / "other", marker, python)
    if clone.exists():
        assert "preparing" not in _make(clone, marker, python)
