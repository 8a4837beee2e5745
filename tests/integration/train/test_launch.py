import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import slurm, stages

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

OPTIONS = ("digits", "--shards", "2", "--depth", "10", "--epochs", "15", "--checkpoint-every", "20")
IMAGE = "toolkit/train:launch-tests"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the weights after an unbroken run of one worker."""
    out = tmp_path_factory.mktemp("one")
    own = [sys.executable, "-m", "train", *OPTIONS, "--out", str(out), "--progress", "quiet"]
    subprocess.run(own, check=True, cwd=stages.ROOT)
    return str(read_manifest(out)["weights_sha256"])


def read_manifest(runs: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(next(runs.glob("*/manifest.json")).read_text(encoding="utf-8"))
    return value


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Farm]:
    outcome = stages.build("train", tag=IMAGE)
    assert outcome.code == 0, outcome.text
    with slurm.start(IMAGE, tmp_path_factory.mktemp("farm")) as found:
        yield found
    subprocess.run(["docker", "image", "rm", IMAGE], capture_output=True, check=False)


def test_a_job_of_slurm_is_requeued_and_gives_the_same_weights(expected: str, farm: slurm.Farm) -> None:
    """The job is requeued twice: by the administrator's command, and by the signal that comes before its time limit."""
    options = ("--nodes", "2", "--cpus", "1", "--mem", "2G", "--time", "30", "--interpreter", "/opt/venv/bin/python")
    done = farm("python", "-m", "toolkit", "launch", "slurm", *OPTIONS, *options, "--json")
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)["job"]
    newest = ""
    for interrupt in (["scontrol", "requeue", job], ["scancel", "--batch", "--signal=USR1", job]):
        newest = farm.wait_for_checkpoint(newest)
        assert farm(*interrupt).returncode == 0
    said = farm.wait(job)
    assert "JobState=COMPLETED" in said
    assert "Restarts=2" in said
    found = read_manifest(farm.folder / "runs")
    assert found["resumed_after"]
    assert found["weights_sha256"] == expected


def test_slurm_says_why_it_refuses_a_job(farm: slurm.Farm) -> None:
    options = ("--interpreter", "/opt/venv/bin/python", "--partition", "nowhere")
    done = farm("python", "-m", "toolkit", "launch", "slurm", *OPTIONS, *options)
    assert done.returncode == 4
    assert "Slurm refuses the job" in done.stderr
    assert "invalid partition" in done.stderr
