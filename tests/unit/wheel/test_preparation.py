import re
from pathlib import Path

import pytest

from tests.command import Run

MINI = Path(__file__).parents[2] / "fixtures/mini_tensorflow"


def test_dry_run_says_what_this_machine_would_take(run: Run) -> None:
    said = run("build-wheel", "--dry-run").stderr
    assert re.search(r"machine +TensorFlow from source: \d+ jobs, about \d+ h", said)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--tensorflow", "2.20.0", "--source", str(MINI)), 3, "is TensorFlow 2.19.0, and TensorFlow 2.20.0"),
        (("--downloads", ".", "--dry-run"), 2, "has neither of distdir and repository_cache"),
    ],
)
def test_what_would_come_out_after_hours_is_refused_at_once(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = run("build-wheel", *arguments)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert list(run.folder.iterdir()) == []
