"""A set is locked on demand in a copy of docker/requirements, whose script stands in for the resolver."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toolkit.base import project
from toolkit.base.errors import BuildError
from toolkit.versions import sets
from toolkit.versions.rules import plan_set
from toolkit.versions.set import Set
from toolkit.versions.sets import find_locked
from toolkit.versions.table import load_table

TABLE = load_table()
SET = plan_set(TABLE, Set(tensorflow="2.18.1", python="3.12"))
DAY = "2026-11-21"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(project, "ROOT", tmp_path)
    (tmp_path / "docker/requirements").mkdir(parents=True)
    return tmp_path / "docker/requirements"


def resolve_by(folder: Path, script: str) -> None:
    (folder / "lock").write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    (folder / "lock").chmod(0o755)


def test_a_set_is_written_beside_what_it_was_resolved_from(folder: Path) -> None:
    resolve_by(folder, 'echo "$@" $SSL_CERT_FILE > cpu-2.18.1.txt')
    found = sets.lock_set(SET, TABLE, day=DAY, variables={"SSL_CERT_FILE": "/ca.pem"})
    assert found.read_text() == "--exclude-newer 2026-11-21 cpu-2.18.1 /ca.pem\n"
    assert "tensorflow-cpu==2.18.1 ; platform_machine == 'x86_64'\n" in (folder / "cpu-2.18.1.in").read_text()
    assert find_locked(TABLE, Set(tensorflow="2.18.1", python="3.12")) == SET


def test_a_failure_leaves_nothing_and_is_told_with_the_last_words(folder: Path) -> None:
    resolve_by(folder, "echo no solution; exit 1")
    with pytest.raises(BuildError, match="no solution"):
        sets.lock_set(SET, TABLE, day=DAY)
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_an_interrupt_leaves_nothing(folder: Path) -> None:
    resolve_by(folder, "touch started; sleep 60")
    code = (
        "from pathlib import Path; from toolkit.base import project; from toolkit.versions import sets\n"
        "from toolkit.versions.rules import plan_set; from toolkit.versions.set import Set\n"
        "from toolkit.versions.table import load_table\n"
        f"project.ROOT = Path({str(folder.parents[1])!r}); table = load_table()\n"
        f"sets.lock_set(plan_set(table, Set(tensorflow='2.18.1', python='3.12')), table, day={DAY!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3], stderr=subprocess.DEVNULL)
    while not (folder / "started").exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(30) != 0
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "started"]
