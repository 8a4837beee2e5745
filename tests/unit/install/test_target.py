import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.install.conftest import make_environment
from toolkit.base import interpreters
from toolkit.base.errors import BuildError, PreflightError, ToolkitError, UnsupportedError, UsageError
from toolkit.install.target import choose_python, find


def test_a_folder_that_is_missing_or_empty_becomes_a_new_environment(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert find(tmp_path / "missing") is None
    assert find(tmp_path / "empty") is None


@pytest.mark.parametrize("kind", ["system", "moved", "files", "conda base", "foreign"])
def test_what_is_no_environment_of_the_user_is_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    if kind == "system":
        folder = Path(sys.base_prefix)
    elif kind == "files":
        folder.mkdir()
        (folder / "thesis.txt").touch()
    else:
        made = make_environment(folder)
        if kind == "moved":
            (tmp_path / "other").symlink_to(folder)
            (folder / "pyvenv.cfg").rename(tmp_path / "pyvenv.cfg")
        elif kind == "conda base":
            (folder / "conda-meta").mkdir()
            (folder / "condabin").mkdir()
        else:
            monkeypatch.setattr(os, "geteuid", lambda: made.python.packages.stat().st_uid + 1)
    before = sorted(path for path in tmp_path.rglob("*"))
    with pytest.raises(ToolkitError) as caught:
        find(folder)
    assert isinstance(caught.value, UsageError | PreflightError)
    assert caught.value.remedy
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["own", "managed", "an environment"])
def test_a_python_outside_of_an_environment_is_taken_if_it_is_the_users_own(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a Python of an image or of pyenv is, and that of Debian (PEP 668) is not."""
    folder = make_environment(tmp_path / "environment").folder if kind == "an environment" else Path(sys.base_prefix)
    ask = interpreters.ask
    monkeypatch.setattr(interpreters, "ask", lambda path: replace(ask(path), managed=kind == "managed"))
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    if kind == "own":
        found = find(folder, system=True)
        assert found
        assert not found.new
        first = find(None, {"PATH": str(folder / "bin")}, system=True)
        assert first
        assert first.folder == found.folder
        return
    with pytest.raises(PreflightError if kind == "managed" else UsageError) as caught:
        find(folder, system=True)
    assert "EXTERNALLY-MANAGED" in caught.value.why or "leave out --system" in caught.value.remedy


def test_the_active_environment_is_found(tmp_path: Path) -> None:
    made = make_environment(tmp_path / "one")
    found = find(None, {"VIRTUAL_ENV": str(made.folder), "CONDA_PREFIX": "/nowhere"})
    assert found == made
    assert made.python.minor == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_python_is_chosen_for_which_there_is_a_wheel() -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert choose_python(["3.1", own, "3.99"]).minor == own
    with pytest.raises(BuildError, match="uv failed"):  # it has no such Python to fetch either
        choose_python(["3.1", "3.99"])
    with pytest.raises(UnsupportedError) as caught:
        choose_python(["3.11", "3.12"], "3.14")
    assert "3.11, 3.12" in caught.value.why
