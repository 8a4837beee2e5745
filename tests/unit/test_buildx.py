import base64
import json
import os
import signal
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.console import Console
from toolkit.base.errors import BuildError, EngineError, PreflightError, ToolkitError
from toolkit.engine.buildx import TAIL_LINES, Transcript, build

FAILED = Path(__file__).parents[1] / "fixtures" / "buildx-0.13-failed.txt"
"""The output of buildx 0.13.1 for a two-step build whose second step runs `echo hello && false`."""

QUIET = Console(verbosity=-1)


def test_real_transcript_names_the_step_that_failed() -> None:
    transcript = Transcript()
    heard = [text for line in FAILED.read_text().splitlines(keepends=True) for text in transcript.feed(line)]
    assert transcript.failed is not None
    step, reason = transcript.failed
    assert step == "[2/2] RUN echo hello && false"
    assert "exit code: 1" in reason
    assert "    hello" in heard
    assert transcript.work[1:3] == (len(transcript.done), len(transcript.steps))


def test_the_part_of_the_dockerfile_that_failed_does_not_hide_what_the_program_said() -> None:
    transcript = Transcript()
    lines = [*FAILED.read_text().splitlines(keepends=True), *(f" {n} | >>> --mount={n} \\\n" for n in range(30))]
    for line in lines:
        transcript.feed(line)
    assert "hello" in transcript.tail


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


def _log(said: bytes, stream: int = 2) -> str:
    entry = {"vertex": "sha256:1", "stream": stream, "data": base64.b64encode(said).decode()}
    return json.dumps({"logs": [entry]}) + "\n"


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1), st.data())
def test_a_line_is_whole_however_its_writes_were_cut(lines: list[str], data: st.DataObject) -> None:
    said = "\n".join(lines).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(said)))) | {0, len(said)})
    transcript = Transcript()
    heard = [text for start, end in pairwise(cuts) for text in transcript.feed(_log(said[start:end]))]
    assert heard + transcript.finish() == [f"    {line}" for line in lines]
    assert transcript.tail == lines[-TAIL_LINES:]


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


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_stops_the_build_and_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    program = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '60']);"
        f"open({str(marker)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        build([sys.executable, "-c", program], log=tmp_path / "build.log", console=QUIET)
    # A zombie has an empty command line; a running process has not.
    cmdline = Path(f"/proc/{marker.read_text()}/cmdline")
    end = time.monotonic() + 20
    while cmdline.exists() and cmdline.read_bytes() and time.monotonic() < end:
        time.sleep(0.05)
    assert not cmdline.exists() or cmdline.read_bytes() == b""
