import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolkit.base.project import ROOT
from toolkit.engine.uv import locate

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


STAND_IN = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"
touch "$4/lib/python3.11/site-packages/_tensorflow_toolkit.pth"
cp "$0" "$4/bin/python"
cp "$0" "$4/bin/uv"
echo "$PWD/$4" >"$4/bin/activate"
"""
"""A Python that makes only what an environment needs to name its folder."""


BACKEND = """
import os, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    info, name = "tensorflow_toolkit-1.dist-info", "tensorflow_toolkit-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("_tensorflow_toolkit.pth", os.getcwd())
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: tensorflow-toolkit\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\ntoolkit = toolkit:main\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
"""A build backend that needs no other package."""


def _clone(folder: Path) -> Path:
    """Make a clone with a package that says where its program is, and without other packages."""
    for name, text in {
        "Makefile": (ROOT / "Makefile").read_text(),
        "docker/requirements/toolkit.txt": "",
        "docker/requirements/dev.txt": "",
        "docker/requirements/uv.txt": "",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        "backend.py": BACKEND,
        "toolkit/__init__.py": "",
        "toolkit/__main__.py": "import sys; print(__file__, sys.prefix, *sys.argv[1:])\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _make(clone: Path, target: str, python: Path | str) -> str:
    variables = os.environ | {"PIP_NO_INDEX": "1"}
    own = [f"UV={locate()}"] if str(python) == str(Path(sys.base_prefix) / "bin" / "python3") else []
    argv = ["make", f"PYTHON={python}", *own, target]
    return subprocess.run(argv, cwd=clone, env=variables, capture_output=True, text=True, check=True).stdout


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


@pytest.mark.slow
def test_the_program_of_a_copied_clone_is_its_own(tmp_path: Path) -> None:
    clone, copy = _clone(tmp_path / "clone"), tmp_path / "copy"
    _make(clone, ".venv/ready", Path(sys.base_prefix) / "bin" / "python3")
    shutil.copytree(clone, copy, symlinks=True)
    asked = [copy / ".venv" / "bin" / "toolkit", "up", "a b"]
    expected = f"{copy}/toolkit/__main__.py {copy}/.venv up a b\n"
    assert subprocess.run(asked, cwd="/", capture_output=True, text=True, check=True).stdout == expected
    said = _make(copy, "run", Path(sys.base_prefix) / "bin" / "python3")
    assert f"{copy}/.venv up digits" in said
    assert not _names(copy / ".venv", clone)


def test_the_path_to_the_clone_is_relative() -> None:
    """Python reads it by the locale's encoding, which may lack letters of the path: no Python would start there."""
    if not (Path(sys.prefix) / "ready").exists():
        pytest.skip("the environment was not made by make")
    for file in Path(sys.prefix).glob("lib/python3*/site-packages/_tensorflow_toolkit.pth"):
        assert file.read_text() == "../../../..\n"
