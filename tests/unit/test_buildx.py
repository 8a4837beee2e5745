import base64
import json
import sys
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


def _log(said: bytes) -> str:
    entry = {"vertex": "sha256:1", "stream": 2, "data": base64.b64encode(said).decode()}
    return json.dumps({"logs": [entry]}) + "\n"


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1), min_size=1), st.data())
def test_a_line_is_whole_however_its_writes_were_cut(lines: list[str], data: st.DataObject) -> None:
    said = "\n".join(lines).encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(said)))) | {0, len(said)})
    transcript = Transcript()
    heard = [text for start, end in pairwise(cuts) for text in transcript.feed(_log(said[start:end]))]
    assert heard + transcript.finish() == [f"    {line}" for line in lines]
    assert transcript.tail == lines[-TAIL_LINES:]


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
