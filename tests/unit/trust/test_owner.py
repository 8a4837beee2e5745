"""What another user can change is refused before anything of it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Run
from tests.unit.trust.conftest import STRANGER, Canary
from toolkit import interpreters
from toolkit.errors import PreflightError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture
def environment(tmp_path: Path, canary: Canary) -> Path:
    """An environment whose interpreter writes the canary whenever it starts."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (_packages(folder) / "zz.pth").write_text(canary.python)
    return folder


def _packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3.*/site-packages"))


def test_the_canary_sings_in_an_environment_of_ones_own(environment: Path, canary: Canary) -> None:
    assert interpreters.ask(environment / "bin" / "python").prefix == environment
    assert canary.has_sung()


@as_root
@pytest.mark.parametrize("way", ["--into", "VIRTUAL_ENV", "CONDA_PREFIX", "smoke"])
def test_an_environment_of_another_user_is_not_started(environment: Path, canary: Canary, run: Run, way: str) -> None:
    for path in (environment, *environment.rglob("*")):
        os.lchown(path, STRANGER, STRANGER)
    options = {"smoke": ["smoke", "--environment"], "--into": ["install", "--card", "none", "--dry-run", "--into"]}
    variables = {way: str(environment)} if way not in options else {}
    arguments = [*options[way], str(environment)] if way in options else ["install", "--card", "none", "--dry-run"]
    done = run(*arguments, **variables)
    assert done.returncode == 4, done.stderr
    assert f"belongs to user {STRANGER}" in done.stderr
    assert not run.started
    assert not canary.has_sung()


@pytest.mark.parametrize("part", ["", "bin", "bin/python", "pyvenv.cfg", "packages", "zz.pth", "parent"])
@pytest.mark.parametrize("how", [pytest.param("owner", marks=as_root), "mode"])
def test_each_part_that_decides_what_runs_counts(environment: Path, canary: Canary, part: str, how: str) -> None:
    packages = _packages(environment)
    parts = {"packages": packages, "zz.pth": packages / "zz.pth", "parent": packages.parent}
    path = parts.get(part, environment / part)
    if how == "owner":
        os.lchown(path, STRANGER, STRANGER)
    elif path.is_symlink():  # a link has no mode
        target = path.resolve()
        path.unlink()
        path.write_bytes(target.read_bytes())
        path.chmod(0o777)
    else:
        path.chmod(0o777 if path.is_dir() else 0o666)
    with pytest.raises(PreflightError) as caught:
        interpreters.ask(environment / "bin" / "python")
    assert caught.value.remedy
    assert not canary.has_sung()


@as_root
@pytest.mark.parametrize("kind", ["link between", "library"])
def test_the_python_behind_an_environment_counts(environment: Path, canary: Canary, tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)
    if kind == "link between":
        between = other / "bin" / "python"
        between.symlink_to((environment / "bin" / "python").resolve())
        os.lchown(between, STRANGER, STRANGER)
        (environment / "bin" / "python").unlink()
        (environment / "bin" / "python").symlink_to(between)
    else:
        library = other / "lib" / f"python3.{sys.version_info.minor}"
        library.mkdir(parents=True)
        (library / "os.py").write_text(canary.python)
        os.lchown(library / "os.py", STRANGER, STRANGER)
        settings = environment / "pyvenv.cfg"
        settings.write_text(settings.read_text().replace("home = ", f"home = {other / 'bin'}\n# "))
    with pytest.raises(PreflightError, match="is not run"):
        interpreters.ask(environment / "bin" / "python")
    assert not canary.has_sung()
