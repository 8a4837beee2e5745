import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.train import runs
from tests.unit.train.native.test_runs import NATIVE, OTHER_LIBRARIES
from tests.unit.train.test_replay import AUDITED, repeat
from train.native import operations
from train.record import audit

pytestmark = pytest.mark.usefixtures("no_drawing")


def test_instructions_and_threads_do_not_matter(
    tmp_path: Path, kernels: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "set_threads", lambda _: None)
    folder = runs.make(tmp_path / "first", *AUDITED, *NATIVE)
    for instructions, threads in [(b"avx2", 1), (b"avx512", 3)]:
        if kernels.toolkit_choose(instructions):
            kernels.toolkit_set_threads(threads)
            assert repeat(folder, *NATIVE) == [[line] for line in audit.read_lines(folder)]


@pytest.mark.slow
def test_other_libraries_do_not_matter(tmp_path: Path) -> None:
    folder = runs.make(tmp_path / "first", *AUDITED, *NATIVE)
    arguments = [*runs.ARGUMENTS, *NATIVE, "--out", str(tmp_path / "again")]
    command = [sys.executable, "-m", "train.use.replay", str(folder), "0:4,12:15", "0", *arguments]
    done = subprocess.run(command, env={**os.environ, **OTHER_LIBRARIES}, check=True, capture_output=True, text=True)
    recorded = audit.read_lines(folder)
    assert json.loads(done.stdout.splitlines()[-1]) == [[recorded[0]], [recorded[3]]]
