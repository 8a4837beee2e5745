"""Environments of somebody else, and those that were changed, are not used: none of their programs runs."""

# mypy: disable-error-code="func-returns-value"

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker
from toolkit.base import seals
from toolkit.base.console import Console
from toolkit.base.errors import PreflightError
from toolkit.engine import Environment, EnvironmentPlan, Job, content, host, packages
from toolkit.engine.host import HostEngine
from toolkit.engine.uv import Uv

PACKAGES = "venv/lib/python3.11/site-packages"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    maker.make_environment(folder, Path(sys.executable))
    return folder


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[EnvironmentPlan]:
    """Stand in for uv, and list what was installed."""
    made: list[EnvironmentPlan] = []

    def install(plan: EnvironmentPlan, _uv: Uv, _console: Console) -> dict[str, Any]:
        (plan.folder / "venv" / "bin").mkdir(parents=True)
        host.interpreter(plan.folder).symlink_to(sys.executable)
        packages.save(plan.folder, {})
        made.append(plan)
        return maker.describe_wheel()

    monkeypatch.setattr(host, "_install", install)
    return made


def find(state: Path) -> Environment | None:
    return HostEngine(state).find(maker.plan_environment(state))


def prepare(state: Path) -> Environment:
    return HostEngine(state).prepare(maker.plan_environment(state), Console())


def folder_of(state: Path) -> Path:
    return maker.plan_environment(state).folder


def replace(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("#!/bin/sh")

    return change


def poison(folder: Path) -> None:
    """Change bytecode, and leave size and time as they were, which is all that Python looks at in its source."""
    path = folder / PACKAGES / "old.cpython-311.pyc"
    before = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "interpreter": replace("venv/bin/python"),
    "link to another interpreter": lambda folder: (
        (folder / "venv/bin/python").unlink(),
        (folder / "venv/bin/python").symlink_to("/bin/sh"),
    ),
    "configuration": replace("venv/pyvenv.cfg"),
    "module that is imported first": replace(f"{PACKAGES}/sitecustomize.py"),
    "lines that are run first": replace(f"{PACKAGES}/a.pth"),
    "package": replace(f"{PACKAGES}/numpy/__init__.py"),
    "library": replace(f"{PACKAGES}/tensorflow.cpython-311-x86_64-linux-gnu.so"),
    "linked package": lambda folder: (folder / PACKAGES / "numpy").symlink_to("/tmp"),
    "bytecode without its source": replace(f"{PACKAGES}/json.pyc"),
    "bytecode": poison,
    "file gone": lambda folder: (folder / PACKAGES / "tensorflow.py").unlink(),
    "file with a hole of 1 TB": lambda folder: os.truncate(folder / PACKAGES / "tensorflow.py", 1 << 40),
    "list of 1 TB": lambda folder: (replace("venv/pyvenv.cfg")(folder), os.truncate(folder / "files.json", 1 << 40)),
    "link to files that vanish": lambda folder: (folder / "venv/lib64").symlink_to("/proc/self/fd"),
    "link to a whole disk": lambda folder: (folder / "venv/lib64").symlink_to("/"),
    "pipe": lambda folder: os.mkfifo(folder / PACKAGES / "pipe.py"),
    "linked environment": lambda folder: (
        (folder / "venv").rename(folder.parent / "moved"),
        (folder / "venv").symlink_to(folder.parent / "moved"),
    ),
    "manifest": lambda folder: maker.change_json(folder / "manifest.json", lambda value: value.update(x=1)),
    "list and file": lambda folder: (replace("venv/bin/python")(folder), replace("files.json")(folder)),
    "seal": lambda folder: maker.change_json(folder / "seal.json", lambda value: value.update(state="x")),
    "no seal": lambda folder: (folder / "seal.json").unlink(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_environment_is_made_anew_and_the_reason_is_said(
    state: Path,
    pip: list[EnvironmentPlan],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setattr(content, "MOST", 1000)
    CHANGES[name](folder_of(state))
    assert find(state) is None
    assert not prepare(state).reused
    assert len(pip) == 1
    if name != "file gone":
        assert "is made anew: " in capsys.readouterr().err
    assert prepare(state).reused


@pytest.mark.parametrize("move", [shutil.move, lambda old, new: subprocess.run(["cp", "-a", old, new], check=True)])
def test_a_clone_that_its_owner_moved_or_copied_is_used(
    state: Path, pip: list[EnvironmentPlan], tmp_path: Path, move: Callable[[Path, Path], object]
) -> None:
    other = tmp_path / "other"
    move(state, other)
    seal = (folder_of(other) / "seal.json").read_text()
    assert find(other) is not None
    assert (folder_of(other) / "seal.json").read_text() == seal, "looking writes nothing"
    assert prepare(other).reused
    assert not pip


def test_what_a_stranger_brought_along_is_not_run(
    tmp_path: Path, pip: list[EnvironmentPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    seals.make_key()  # that of this user, without which no mark would hold
    state, ran = tmp_path / "clone" / ".toolkit", tmp_path / "ran"
    with monkeypatch.context() as stranger:
        stranger.setenv("XDG_DATA_HOME", str(tmp_path / "stranger"))
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\ntouch {ran}\n")
        program.chmod(0o755)
        maker.make_environment(state, program)
        assert find(state) is not None
    engine = HostEngine(state)
    environment = engine.prepare(maker.plan_environment(state), Console(verbosity=-1))
    assert engine.run(environment, Job(title="test", argv=("-c", ""))) == 0
    assert (len(pip), ran.exists()) == (1, False)


@needs_root
@pytest.mark.parametrize("place", ["state folder", "environment"])
def test_what_belongs_to_another_user_is_not_run(state: Path, pip: list[EnvironmentPlan], place: str) -> None:
    if place == "environment":
        os.chown(folder_of(state), 12345, 12345)
        assert find(state) is None
        assert not prepare(state).reused
        return
    os.chown(state, 12345, 12345)
    for ask in (find, prepare):
        with pytest.raises(PreflightError, match="are not run") as caught:
            ask(state)
        assert "TOOLKIT_STATE" in caught.value.remedy
    assert not pip


def test_a_folder_that_others_may_write_to_is_refused(state: Path, pip: list[EnvironmentPlan]) -> None:
    state.chmod(0o777)
    with pytest.raises(PreflightError, match="are not run") as caught:
        prepare(state)
    assert "777" in caught.value.why
    state.chmod(0o755)
    assert prepare(state).reused


def test_a_link_in_the_place_of_a_lock_empties_no_file(state: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    folder = folder_of(state)
    folder.with_name(f"{folder.name}.lock").symlink_to(mine)
    with pytest.raises(PreflightError, match=r"cannot write .*\.lock"):
        prepare(state)
    assert mine.read_text() == "mine"


def test_no_module_of_the_current_folder_runs_while_an_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("venv", "pip", "json", "uv", "tensorflow"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    venv, install, warm, _other = (list(words) for words in maker.plan_environment(tmp_path).commands)
    compiled = [sys.executable if word.endswith("/venv/bin/python") else word for word in warm]
    for words in ([*venv[:-1], "--help"], [*install, "--help"], [*compiled[:-1], "import json"]):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "stranger" in done.stderr) == (0, False)


def test_the_callers_variables_do_not_choose_another_library_of_python(
    state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    found = find(state)
    assert found
    program = "import sys; raise SystemExit(sys.pycache_prefix is not None)"
    assert HostEngine(state).run(found, Job(title="test", argv=("-c", program))) == 0


def test_the_key_is_private_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert not seals.holds("test", 1, "x")
    seals.make_key()
    mark = seals.mark("test", [1])
    seals.make_key()
    assert seals.holds("test", [1], mark)
    assert not seals.holds("test", [2], mark)
    assert not seals.holds("another test", [1], mark)
    assert stat.S_IMODE(seals.find_key().stat().st_mode) == 0o600


SPOILT: dict[str, Callable[[Path], object]] = {
    "readable": lambda path: path.chmod(0o644),
    "cut": lambda path: path.write_bytes(b"short"),
    "linked": lambda path: (path.rename(path.with_name("other")), path.symlink_to("other")),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path, 0o600)),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_key_that_others_may_know_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    seals.make_key()
    SPOILT[name](seals.find_key())
    with pytest.raises(PreflightError, match="cannot be used") as caught:
        seals.make_key()
    assert "XDG_DATA_HOME" in caught.value.remedy
