import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import slurm, stages

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

OPTIONS = ("digits", "--shards", "2", "--depth", "10", "--epochs", "15")
LONGER = ("--depth", "100", "--growth", "22", "--epochs", "40")
INTERPRETER = ("--interpreter", "/opt/venv/bin/python")
IMAGE = "toolkit/train:launch-tests"
SAVED = "the state is saved"
OTHERS = [pytest.param(suite, marks=pytest.mark.weekly) for suite in slurm.SUITES if suite != "trixie"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def expected_of_longer(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("longer"), *LONGER)


def train(out: Path, *options: str) -> str:
    """Return the digest of the weights after an unbroken run of one worker."""
    own = [sys.executable, "-m", "train", *OPTIONS, *options, "--out", str(out), "--progress", "quiet"]
    subprocess.run(own, check=True, cwd=stages.ROOT)
    return str(read_manifest(out)["weights_sha256"])


def read_manifest(runs: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(next(runs.glob("*/manifest.json")).read_text(encoding="utf-8"))
    return value


@pytest.fixture(scope="module", params=["trixie", *OTHERS])
def farm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Farm]:
    """Return a cluster with the Slurm of a Debian."""
    outcome = stages.build("train", tag=IMAGE)
    assert outcome.code == 0, outcome.text
    with slurm.start(IMAGE, tmp_path_factory.mktemp("farm"), request.param) as found:
        assert slurm.SUITES[request.param] in found("sinfo", "--version").stdout
        yield found


@pytest.fixture(scope="module", autouse=True)
def remove() -> Iterator[None]:
    yield
    subprocess.run(["docker", "image", "rm", IMAGE], capture_output=True, check=False)


@pytest.fixture
def launch(farm: slurm.Farm) -> Iterator[Callable[..., str]]:
    """Return what submits a job and returns its number, in a cluster without runs and logs of other tests."""

    def submit(*options: str) -> str:
        done = farm("python", "-m", "toolkit", "launch", "slurm", *OPTIONS, *INTERPRETER, "--json", *options)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["job"])

    yield submit
    farm("scancel", "--user=root")
    while farm("squeue", "--noheader").stdout:
        time.sleep(0.2)
    shutil.rmtree(farm.folder / "runs", ignore_errors=True)
    for log in farm.folder.glob("*.log"):
        log.unlink()


def stop(farm: slurm.Farm, job: str) -> None:
    """Stop a job by the signal that comes before the time limit, a requeue, and a job that goes first.

    No checkpoint is written but at the end of an epoch and at a stop.
    """
    urgent = ["sbatch", "--nodes=2", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1"]
    stops = (["scancel", "--signal=TERM", job], ["scontrol", "requeue", job], urgent)
    for count, argv in enumerate(stops, 1):
        farm.wait_for("first step:", count)
        assert farm(*argv).returncode == 0
        farm.wait_for(SAVED, count, 30)


def require_result(farm: slurm.Farm, said: str, weights: str) -> None:
    assert "JobState=COMPLETED" in said, said
    found = read_manifest(farm.folder / "runs")
    assert found["resumed_after"]
    assert found["weights_sha256"] == weights


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_job_is_saved_at_each_stop_and_gives_the_same_weights(
    expected: str, farm: slurm.Farm, launch: Callable[..., str], nodes: str
) -> None:
    job = launch("--nodes", nodes, "--cpus", "1", "--", "--mem=2G", "--time=30")
    stop(farm, job)
    said = farm.wait(job)
    assert "Restarts=3" in said
    require_result(farm, said, expected)


@pytest.mark.weekly
@pytest.mark.timeout(4800)
def test_a_job_that_slurm_itself_stops_before_its_limit_gives_the_same_weights(
    expected_of_longer: str, farm: slurm.Farm, launch: Callable[..., str]
) -> None:
    """Slurm sends the signal one to two minutes after the start."""
    job = launch(*LONGER, "--nodes", "1", "--cpus", "1", "--", "--mem=2G", "--time=4")
    said = farm.wait(job, 3000)
    assert "Restarts=0" not in said, said
    require_result(farm, said, expected_of_longer)


@pytest.mark.weekly
@pytest.mark.timeout(1800)
def test_a_job_in_a_container_of_apptainer_is_saved_at_each_stop(expected: str, tmp_path: Path) -> None:
    """The script is that of ``examples``, and an ordinary user submits it."""
    variables = {**os.environ, "TOOLKIT_STATE": str(tmp_path / "state")}
    subprocess.run([sys.executable, "-m", "toolkit", "build-image", "--tag", IMAGE], check=True, env=variables)
    folder = tmp_path / "work"
    folder.mkdir()
    subprocess.run(["docker", "save", "--output", folder / "train.tar", IMAGE], check=True)
    shutil.copy(stages.ROOT / "examples/train.sbatch", folder)
    own = "PYTHONPATH=/packages:/opt/toolkit exec /usr/bin/python3.11 -m toolkit"
    (folder / "toolkit").write_text(f'#!/bin/sh\n{own} "$@"\n')
    (folder / "toolkit").chmod(0o755)
    (folder / ".venv/bin").mkdir(parents=True)
    faster = "export APPTAINER_MKSQUASHFS_ARGS='-comp zstd -Xcompression-level 1'"
    (folder / ".venv/bin/activate").write_text(f"PATH=/work:$PATH\n{faster}\n")
    with slurm.start(IMAGE, folder, "sid", packages="apptainer/sid squashfuse/sid") as farm:
        prepare = "useradd --create-home user; chown --recursive user /work; chmod 644 train.tar; chmod 666 /dev/fuse"
        assert farm("sh", "-ec", prepare).returncode == 0
        submit = ("sbatch", "--parsable", "--output=%j.log", "--mem=2G", "--time=30", "train.sbatch", *OPTIONS)
        done = farm("runuser", "--user", "user", "--", *submit)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip()
        stop(farm, job)
        said = farm.wait(job)
        assert "Restarts=3" in said
        require_result(farm, said, expected)


def test_a_cancelled_job_is_saved_and_does_not_come_back(farm: slurm.Farm, launch: Callable[..., str]) -> None:
    job = launch("--nodes", "2", "--cpus", "1", "--", "--mem=2G")
    farm.wait_for("first step:", 1)
    assert farm("scancel", job).returncode == 0
    farm.wait_for(SAVED, 1, 30)
    said = farm.wait(job)
    assert "JobState=CANCELLED" in said
    assert "Restarts=0" in said


def test_a_node_names_its_driver_if_one_is_free(farm: slurm.Farm) -> None:
    """A program in the place of nvidia-smi names one."""
    code = "from toolkit.launch import batch; print(batch.ask_driver(batch.SlurmRequest(nodes=2, gpus=1)))"
    assert not farm("python", "-c", code).stdout.strip()
    program = "/usr/local/bin/nvidia-smi"
    farm("sh", "-c", f"printf '#!/bin/sh\\necho 550.54.15\\n' > {program} && chmod +x {program}")
    try:
        assert farm("python", "-c", code).stdout.strip() == "550.54.15"
    finally:
        farm("rm", program)


REFUSED = {
    "-- --partition=nowhere": ("invalid partition", "the script is"),
    "--gpus=h100:1 -- --partition=short": ("not available", "it can start in: main, urgent"),
    "-- --mem=99G": ("not available", "main (limit infinite, nodes of 1 cores, 4000 MB, gpu:a100:4)"),
    "-- --partition=short --time=9:00:00": ("9:00:00 is above the limit of 4:00:00", "short (limit 4:00:00"),
    "-- --time=4h": ("Invalid --time", "the script is"),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.items())
def test_what_slurm_can_never_start_is_refused(farm: slurm.Farm, options: str, said: tuple[str, str]) -> None:
    command = ("python", "-m", "toolkit", "launch", "slurm", "digits", *INTERPRETER, "--nodes", "1")
    done = farm(*command, *options.split())
    assert done.returncode == 4
    assert all(word in done.stderr for word in ("Slurm refuses the job", *said)), done.stderr
    assert not farm("squeue", "--noheader").stdout
