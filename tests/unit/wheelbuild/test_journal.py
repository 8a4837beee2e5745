import os
import subprocess
from pathlib import Path

import pytest
from wheelbuild import journal

COPY = Path(__file__).parents[3] / "docker/scripts/copy-log"


def write(folder: Path, run: str, text: str, *, at: int) -> None:
    found = journal.open_journal(folder, run)
    found.log.write_text(text)
    os.utime(found.folder, (at, at))


def copy(folder: Path, run: str, target: Path) -> dict[str, str]:
    subprocess.run([COPY, folder, run, target], check=True)
    return {file.name: file.read_text() for file in target.iterdir()}


def test_the_log_of_another_run_is_never_copied(tmp_path: Path) -> None:
    logs = tmp_path / "log"
    write(logs, "first", "the disk is full", at=1)
    assert copy(logs, "second", tmp_path / "second") == {}, "it never came as far as Bazel"
    assert copy(logs, "first", tmp_path / "first") == {"build.log": "the disk is full"}


@pytest.mark.parametrize("name", ["../other", "a b", "-x", "x" * 65])
def test_names_that_are_no_folders_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="RUN_ID"):
        journal.read_run(tmp_path / "none", {"RUN_ID": name})


def test_events_are_written_through_the_redaction(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text("one\ntwo\n")
    found = journal.open_journal(tmp_path / "log", "run")
    found.write_events(raw, lambda line: "" if line == "one\n" else line.upper())
    assert found.events.read_text() == "TWO\n"
    found.write_events(tmp_path / "none", str)
    assert found.events.read_text() == "TWO\n", "a Bazel that wrote none"


def test_logs_of_an_earlier_server_are_removed(tmp_path: Path) -> None:
    base = tmp_path / "0123abc"
    (base / "server").mkdir(parents=True)
    leaks = ["command.log", "java.log.host.root.log.java.20260101-000000.1", "java_pid7.hprof", "server/cmdline"]
    for name in [*leaks, "action_cache"]:
        (base / name).write_text("x")
    (base / "java.log").symlink_to(leaks[1])
    journal.remove_leaks(tmp_path)
    assert sorted(path.name for path in base.iterdir()) == ["action_cache", "server"]
