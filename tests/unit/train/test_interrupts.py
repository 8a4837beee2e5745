"""Whenever a signal comes, the job ends by it or finishes the run: it never ends with 0 and without a run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import interrupted, loaded
from tests.interrupted import Ended
from tests.tiers import slow, weekly

OPTIONS = ("digits", "--depth", "10", "--steps", "2", "--batch-size", "64", "--threads", "1", "--progress", "plain")


def train(out: Path, moment: int, number: int) -> Ended:
    python, counted = loaded.start(), out.with_suffix(".count")
    named = {interrupted.MOMENT: str(moment), interrupted.SIGNAL: str(number), interrupted.COUNTED: str(counted)}
    argv = [str(python), "-c", "from tests.interrupted import main; main()", *OPTIONS, "--out", str(out)]
    done = subprocess.run(argv, env=os.environ | named, capture_output=True, text=True, check=False)
    count = int(counted.read_text()) if counted.exists() else 0
    return Ended(done.returncode, done.stdout, done.stderr, count)


@pytest.mark.parametrize("count", [slow(3), weekly(100)])
def test_a_job_that_is_interrupted_ends_by_the_signal_or_finishes(tmp_path: Path, count: int) -> None:
    out = tmp_path / "runs"
    unbroken = train(out, 0, 0)
    assert unbroken.code == 0, unbroken.error
    name = next(out.iterdir()).name

    def again(moment: int, number: int) -> Ended:
        shutil.rmtree(out, ignore_errors=True)
        return train(out, moment, number)

    found = interrupted.sweep(count, unbroken.count, again, lambda _: (out / name / "manifest.json").exists())
    print(dict(found))
    assert not {*found} - interrupted.RIGHT
    assert found["130"]
