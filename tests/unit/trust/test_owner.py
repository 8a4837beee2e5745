"""What another user can change is refused before anything of it runs."""

import ast
import os
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.command import Run
from tests.makers.canary import STRANGER, Canary
from toolkit.base import files, interpreters
from toolkit.base.errors import PreflightError
from tools.layers import list_modules

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


def test_owners_and_modes_are_changed_by_handle_alone() -> None:
    """By name, a link that is put there between two steps leads elsewhere."""
    for path in (*list_modules("toolkit"), *list_modules("train")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                kept = {word.arg for word in node.keywords} == {"dir_fd", "follow_symlinks"}
                named = node.func.attr in {"chown", "lchown", "chmod", "lchmod"}
                assert kept or not named, f"{path}:{node.lineno} changes an owner or a mode by name"


_RACE = """
import os
os.setgroups([]), os.setgid(USER), os.setuid(USER)
while True:  # until it is killed
    for step, *names in (
        (os.rename, "runs", "away"), (os.symlink, "../secret", "runs"), (os.unlink, "runs"), (os.rmdir, "away"),
    ):
        try:
            step(*names)
        except OSError:
            pass
""".replace("USER", str(STRANGER))


@as_root
@pytest.mark.parametrize("what", ["folder", "file", "mode"])
def test_a_race_gives_nothing_of_root_away(tmp_path: Path, what: str) -> None:
    """A user exchanges what root makes for a link to a file of root, again and again."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    place = tmp_path / "user"
    place.mkdir()
    os.chown(place, STRANGER, STRANGER)
    program = [sys.executable, "-I", "-c", _RACE]
    racer = subprocess.Popen(program, cwd=place)
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            with suppress(PreflightError, OSError):
                if what == "folder":
                    files.require_writable(place / "runs")
                elif what == "file":
                    files.write_atomically(place / "runs" / "record", "text")
                else:
                    files.make_folder(place / "runs", (0, 0))
                    files.set_mode(place / "runs", 0o755)
    finally:
        racer.kill()
        racer.wait()
    status = secret.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o700)
    assert all(path.lstat().st_uid == 0 for path in secret.iterdir())
