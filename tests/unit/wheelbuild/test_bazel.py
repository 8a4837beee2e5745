import hashlib
import sys
from pathlib import Path

import pytest
from wheelbuild import bazel
from wheelbuild.redaction import Redactor

PROGRESS = "[1,234 / 5,678] Compiling tensorflow/core/kernels/host.cc; 12s local ... (2 actions running)\n"


def test_the_console_gets_what_matters_and_the_log_gets_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [PROGRESS, "note: a warning of the compiler\n", "ERROR: it broke\n", "INFO: Elapsed time: 1s\n"]
    program = f"import sys; sys.stderr.write({''.join(lines)!r}); sys.exit(36)"
    ended = bazel.run([sys.executable, "-c", program], environment={}, folder=tmp_path, log=tmp_path / "log")
    assert ended == bazel.Ended(code=36)
    assert (tmp_path / "log").read_text() == "".join(lines)
    assert capsys.readouterr().out == "".join(line for line in lines if "note:" not in line)


def test_a_full_disk_is_heard_of_although_the_log_is_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = f"import sys; sys.stderr.write({PROGRESS!r} * 20000); sys.exit(1)"
    ended = bazel.run([sys.executable, "-c", program], environment={}, folder=tmp_path, log=Path("/dev/full"))
    assert ended == bazel.Ended(code=1, full="/dev/full: No space left on device"), "and Bazel was listened to"
    assert capsys.readouterr().out.count("\n") == 20000


def test_no_line_is_kept_or_shown_before_it_is_redacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The program reads its log while it runs, so a kill at any moment would leave no secret."""
    log = tmp_path / "log"
    program = (
        "import pathlib, sys, time\n"
        "print('ERROR: t0ps3cret', flush=True)\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "while not log.read_text().endswith('\\n'): time.sleep(0.01)\n"
        "sys.exit('t0ps3cret' in log.read_text())\n"
    )
    redact = Redactor("build --remote_header=k=t0ps3cret").redact
    argv = [sys.executable, "-c", program]
    assert bazel.run(argv, environment={}, folder=tmp_path, log=log, redact=redact).code == 0
    assert log.read_text() == capsys.readouterr().out == "ERROR: [redacted]\n"


@pytest.mark.parametrize(
    ("line", "killed"),
    [
        ("ERROR: BUILD:3:9: Compiling a.cc failed: (Killed): process-wrapper failed", True),
        ("ERROR: BUILD:3:9: Compiling a.cc failed: (Exit 137): clang failed", True),
        ("clang: error: unable to execute command: Killed", True),
        ("Server terminated abruptly (error code: 14, error message: 'Socket closed')", True),
        ("ERROR: BUILD:3:9: Compiling a.cc failed: (Exit 1): clang failed", False),
        ("Compiling killed_process_handler.cc", False),
    ],
)
def test_a_kill_is_told_from_an_error(line: str, killed: bool) -> None:
    assert bool(bazel.KILLED.search(line)) is killed


def test_the_bazel_that_answers_is_identified_by_its_bytes(tmp_path: Path) -> None:
    """A launcher such as Bazelisk chooses its Bazel by the current tree, so the version is asked for there."""
    tree, programs = tmp_path / "tree", tmp_path / "programs"
    tree.mkdir()
    programs.mkdir()
    (tree / ".bazelversion").write_text("7.7.1\n")
    real = programs / "bazel-launcher"
    real.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "bazel $(cat .bazelversion)"\n')
    real.chmod(0o755)
    (programs / "bazel").symlink_to(real.name)
    found = bazel.identify({"PATH": f"{programs}:/usr/bin:/bin"}, tree)
    assert found.version == "7.7.1"
    assert found.path == str(real)
    assert found.sha256 == hashlib.sha256(real.read_bytes()).hexdigest()
