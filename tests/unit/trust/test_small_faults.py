"""Closed streams, few handles, and keys that are not private: one message, and an exit code of the page."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.command import Run
from toolkit.base import project


def _start(tmp_path: Path, words: str, prepare: Callable[[], object], *, limit: int = 0) -> tuple[int, str, str]:
    """Run a command whose streams, once they are set up, are changed by ``prepare``."""

    def change() -> None:
        prepare()
        if limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    argv = [sys.executable, "-P", "-m", "toolkit", *words.split()]
    variables = {**os.environ, "PYTHONPATH": str(project.ROOT), "DOCKER_HOST": "tcp://127.0.0.1:1"}
    done = subprocess.run(
        argv, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, preexec_fn=change
    )
    return done.returncode, done.stdout, done.stderr


def test_closed_output_is_one_message(tmp_path: Path) -> None:
    assert _start(tmp_path, "ls", partial(os.close, 1)) == (
        4,
        "",
        "error: standard output is closed\n  try: redirect it: >/dev/null\n",
    )


@pytest.mark.parametrize("words", ["ls", "verify nothing", "train digits --engine host --card none --dry-run"])
@pytest.mark.parametrize("limit", [5, 7, 16])
def test_few_handles_are_one_message(tmp_path: Path, words: str, limit: int) -> None:
    """Python itself needs five."""
    code, _, error = _start(tmp_path, words, lambda: None, limit=limit)
    assert "Traceback" not in error
    assert code in {0, 2, 4}, error
    assert code != 4 or "too many files are open" in error.lower()


@pytest.mark.parametrize("mode", [0o666, 0o640, 0o604, 0o620])
def test_a_key_that_others_may_use_signs_nothing(run: Run, mode: int) -> None:
    assert run("key", "new", "k").returncode == 0
    (run.folder / "runs" / "x").mkdir(parents=True)
    (run.folder / "k").chmod(mode)
    done = run("sign", "runs/x", "--key", "k")
    assert done.returncode == 4, done.stderr
    assert f"its mode is {mode:o}" in done.stderr
    (run.folder / "k").chmod(0o600)
    assert "is not private" not in run("sign", "runs/x", "--key", "k").stderr


def test_a_new_key_in_a_work_tree_says_that_it_would_be_published(run: Run) -> None:
    assert "git add" not in run("key", "new", "outside").stderr
    subprocess.run(["git", "init", "--quiet"], cwd=run.folder, check=True)
    assert "`git add .` would publish it" in run("key", "new", "secret").stderr
    (run.folder / ".git" / "info" / "exclude").write_text("other\n")
    assert "git add" not in run("key", "new", "other").stderr
