import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from toolkit.base import files
from toolkit.records import clean
from train.system import signals

NAME = "0123456789ab"
HOLDER = """
import sys, time
from pathlib import Path
from toolkit.base import files
with files.stage(Path(sys.argv[1]), sys.argv[2]) as place:
    (place.path / "half.whl").touch()
    print("held", flush=True)
    time.sleep(60)
"""


def hold(dist: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(dist), NAME], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def kill(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


def test_an_interrupt_waits_until_the_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove = shutil.rmtree

    def interrupt(path: Path, **options: bool) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        remove(path, **options)

    def work() -> int:
        with files.stage(tmp_path, NAME):
            pass
        return 0

    monkeypatch.setattr(shutil, "rmtree", interrupt)
    assert signals.run(work) == signals.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_next_build_removes_what_a_killed_one_left_and_spares_one_that_lives(tmp_path: Path) -> None:
    dead = hold(tmp_path)
    (left,) = files.find_staging(tmp_path)
    kill(dead)
    assert left.is_dir(), "a killed process tidies nothing up"
    alive = hold(tmp_path)
    try:
        assert not left.exists()
        (used,) = files.find_staging(tmp_path)
        with files.stage(tmp_path, NAME):
            pass
        assert (used / "half.whl").exists()
    finally:
        kill(alive)


def test_clean_removes_abandoned_folders_and_keeps_wheels_and_living_builds(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    (dist / NAME).mkdir(parents=True)
    left = dist / f".{NAME}.aaaaaaaa"
    left.mkdir()
    with files.stage(tmp_path, NAME):
        (item,) = clean.find(None, tmp_path / "state", results=[dist])
        assert (item.handle, item.used, clean.remove(item)) == (left, "", "")
        assert [path.name for path in dist.iterdir()] == [NAME]
        assert clean.find(None, tmp_path / "state", results=[tmp_path]) == []
    assert clean.find(None, tmp_path / "state", results=[tmp_path / "nowhere"]) == []
