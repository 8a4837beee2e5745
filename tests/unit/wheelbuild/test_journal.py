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


def test_the_latest_is_copied_where_no_run_is_named(tmp_path: Path) -> None:
    logs = tmp_path / "log"
    write(logs, "old", "old", at=2)
    write(logs, "new", "new", at=3)
    assert copy(logs, "", tmp_path / "out") == {"build.log": "new"}
    assert copy(tmp_path / "none", "", tmp_path / "empty") == {}


def test_a_run_begins_with_an_empty_log_and_few_runs_are_kept(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("of an earlier version, with secrets")
    for number in range(5):
        write(tmp_path, f"run{number}", "x", at=number)
    again = journal.open_journal(tmp_path, "run3")
    assert list(again.folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run2", "run3", "run4"]


@pytest.mark.parametrize("name", ["../other", "a b", "-x", "x" * 65])
def test_names_that_are_no_folders_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="RUN_ID"):
        journal.read_run(tmp_path / "none", {"RUN_ID": name})


def test_the_secret_names_the_run_before_the_argument(tmp_path: Path) -> None:
    assert journal.read_run(tmp_path / "none", {}) == journal.UNNAMED
    assert journal.read_run(tmp_path / "none", {"RUN_ID": "argument"}) == "argument"
    (tmp_path / "run").write_text("secret\n")
    assert journal.read_run(tmp_path / "run", {"RUN_ID": "argument"}) == "secret"


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
