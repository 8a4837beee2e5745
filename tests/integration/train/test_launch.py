import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import slurm, stages
from tests.unit.record import maker

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


@pytest.mark.weekly
def test_a_sweep_is_an_array_of_jobs_and_one_is_requeued_alone(farm: slurm.Farm) -> None:
    """The last job to start has the number of the whole array, and must not requeue the others with itself."""
    options = {"depth": 10, "steps": 300, "checkpoint-every": 10, "kernels": "stock", "threads": 1}
    (farm.folder / "seeds.yaml").write_text(
        json.dumps({"dataset": "digits", "options": options, "grid": {"seed": [0, 1]}})
    )
    planned = maker.plan_environment(farm.folder / ".toolkit")  # of the cluster's Python, which has the locked set
    planned.folder.mkdir(parents=True)
    (planned.folder / "venv").symlink_to("/opt/venv")
    maker.write_records(planned)
    command = ("env", "TOOLKIT_RUNS=members", "python", "-m", "toolkit")
    done = farm(*command, "launch", "slurm", "--sweep", "seeds.yaml", "--slots", "2", "--mem", "2G", "--json")
    assert done.returncode == 0, done.stderr
    array = json.loads(done.stdout)["job"]
    farm.wait_for_checkpoint("", runs="members", count=2)
    shown = {each: farm("scontrol", "show", "job", f"{array}_{each}").stdout for each in ("0", "1")}
    (last,) = (each for each, said in shown.items() if said.startswith(f"JobId={array} "))
    assert farm("scancel", "--batch", "--signal=USR1", f"{array}_{last}").returncode == 0
    said = farm.wait(array)
    assert said.count("JobState=COMPLETED") == 2, said
    assert [said.count(f"Restarts={count}") for count in (0, 1)] == [1, 1], said
    done = farm(*command, "sweep", "seeds.yaml", "--summarise", "--engine", "host", "--json")
    assert done.returncode == 0, done.stderr
    compared = json.loads(done.stdout)
    assert [each["status"] for each in compared["members"]] == ["complete", "complete"]
    runs = [json.loads((farm.folder / each["run"] / "manifest.json").read_text()) for each in compared["members"]]
    assert [bool(each["resumed_after"]) for each in runs] == [each == last for each in ("0", "1")]
    assert (farm.folder / compared["sweep"] / "table.csv").exists()
