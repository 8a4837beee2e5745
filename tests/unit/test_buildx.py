"""Reading a build's transcript: real output of buildx, and whatever else may come down the pipe."""

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.console import Console
from toolkit.engine.buildx import Transcript, build
from toolkit.errors import BuildError, EngineError, PreflightError, ToolkitError

FAILED = Path(__file__).parents[1] / "fixtures" / "buildx-0.13-failed.txt"
"""What buildx 0.13.1 printed for a two-step build whose second step runs `echo hello && false`."""

QUIET = Console(verbosity=-1)


def test_real_transcript_names_the_step_that_failed() -> None:
    transcript = Transcript()
    heard = [text for line in FAILED.read_text().splitlines(keepends=True) for text in transcript.feed(line)]
    assert transcript.failed is not None
    step, reason = transcript.failed
    assert step == "[2/2] RUN echo hello && false"
    assert "exit code: 1" in reason
    assert "    hello" in heard
    assert transcript.summary.startswith(f"[{len(transcript.done)}/")


def test_one_line_objects_of_newer_versions_read_the_same() -> None:
    spread, compact = Transcript(), Transcript()
    decoder, text = json.JSONDecoder(), FAILED.read_text()
    while text.startswith("{"):
        value, end = decoder.raw_decode(text)
        compact.feed(json.dumps(value) + "\n")
        text = text[end:].lstrip()
    for line in FAILED.read_text().splitlines(keepends=True):
        spread.feed(line)
    assert (compact.steps, compact.done, compact.failed) == (spread.steps, spread.done, spread.failed)


@given(st.lists(st.text()))
def test_no_line_breaks_the_reader(lines: list[str]) -> None:
    transcript = Transcript()
    for line in lines:
        transcript.feed(line + "\n")
    assert transcript.failed is None


@pytest.mark.parametrize(
    ("says", "kind"),
    [
        ("ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock", EngineError),
        ("ERROR: failed to solve: write /opt/venv/x: no space left on device", PreflightError),
        ("ERROR: failed to solve: process did not complete successfully", BuildError),
    ],
)
def test_each_way_to_fail_has_its_error(tmp_path: Path, says: str, kind: type[ToolkitError]) -> None:
    argv = [sys.executable, "-c", f"import sys; print({says!r}, file=sys.stderr); sys.exit(1)"]
    with pytest.raises(kind):
        build(argv, log=tmp_path / "build.log", console=QUIET)
    assert says in (tmp_path / "build.log").read_text()


def test_an_interrupt_stops_the_build_and_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '60']);"
        f"open({str(marker)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        build([sys.executable, "-c", program], log=tmp_path / "build.log", console=QUIET)
    # A zombie has no command line; a live one has.
    cmdline = Path(f"/proc/{marker.read_text()}/cmdline")
    assert not cmdline.exists() or cmdline.read_bytes() == b""
