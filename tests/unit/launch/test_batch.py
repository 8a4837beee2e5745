import os
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from tests.command import Run
from toolkit.cli import workers
from toolkit.jobs.training_job import GRACE_SECONDS
from toolkit.launch.batch import (
    Resources,
    SlurmRequest,
    write_slurm,
)
from train.cli import _collect, make_app

CUDA = ("--cuda", "12.6.1", "--cudnn", "9.5.0")


def test_the_script_for_slurm_is_one_that_bash_reads(tmp_path: Path) -> None:
    resources = Resources(cpus=4, memory="16G", gpus=2)
    request = SlurmRequest(nodes=3, resources=resources, partition="long", account="lab", time="1-0", port=3000)
    assert request.workers == 6
    script = write_slurm("toolkit-x", ["env", "A=b c", "python", "-m", "train"], request)
    lines = script.splitlines()
    directives = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert directives >= {
        "--nodes=3",
        "--ntasks-per-node=2",
        "--gpus-per-task=1",
        "--cpus-per-task=4",
        "--mem=16G",
        "--partition=long",
        "--account=lab",
        "--time=1-0",
        "--requeue",
        f"--signal=B:USR1@{2 * GRACE_SECONDS}",
    }
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1].startswith("#SBATCH"), "Slurm reads no directive after a command"
    assert "@" not in script.replace("USR1@", "")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_no_value_changes_what_is_around_it() -> None:
    words = [
        "it's",
        '"',
        "{{ image }}",
        "{% if %}",
        "<&>",
        "$HOME `x` \\ \n#",
        "null",
        "1e3",
        "- a: b",
        "é\u2028\U0001f600",
    ]
    script = write_slurm("x", ["echo", *words], SlurmRequest(nodes=1, resources=Resources()))
    command = script.partition("srun ")[2].partition(" &\nstep=")[0]
    assert shlex.split(command)[-len(words) :] == words


STEP = """#!/bin/bash
echo "$@" > arguments
trap 'echo saved > saved; exit 130' TERM
[ "$STEP" = done ] && exit 3
touch ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("sent", "requeued"), [("USR1", True), ("TERM", False), ("", False)])
def test_the_script_saves_and_goes_back_to_the_queue_before_the_limit(
    tmp_path: Path, sent: str, requeued: bool
) -> None:
    """Slurm's programs are stand-ins here; a real Slurm is in the tests with containers."""
    for name, text in (("srun", STEP), ("scontrol", '#!/bin/bash\necho "$@" > requeued\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = write_slurm("x", ["python", "-m", "train"], SlurmRequest(nodes=2, resources=Resources()))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "STEP": "" if sent else "done"}
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, cwd=tmp_path, env=variables, text=True) as process:
        assert process.stdin
        process.stdin.write(script)
        process.stdin.close()
        while sent and not (tmp_path / "ready").exists():
            assert process.poll() is None
        if sent:
            subprocess.run(["kill", f"-{sent}", str(process.pid)], check=True)
        assert process.wait(timeout=60) == (130 if sent else 3)
    assert (tmp_path / "saved").exists() == bool(sent)
    assert (tmp_path / "requeued").exists() == requeued
    assert (tmp_path / "arguments").read_text().endswith("python -m train\n")


def test_a_machine_without_slurm_can_print_and_not_submit(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--dry-run", "--interpreter", "/opt/python")
    assert done.returncode == 0, done.stderr
    assert "/opt/python -P -m train.peers slurm digits --shards 2" in done.stdout
    done = run("launch", "slurm", "digits", "--shards", "2", PATH="/nowhere")
    assert done.returncode == 4
    assert "sbatch is not on this machine" in done.stderr
    assert not list(run.folder.iterdir())


def test_no_option_of_a_scheduler_is_one_of_the_job() -> None:
    """The launcher takes its own options first, so the job would never get one of the same name."""
    own, job = (
        {name for parameter in command.params for name in parameter.opts}
        for command in (typer.main.get_command(workers), typer.main.get_command(make_app(_collect)))
    )
    assert {"--shards", "--memory"} <= job
    # A job on this machine is told how progress is shown. One of a scheduler has no terminal, so it prints lines.
    assert own & job <= {"dataset", "--json", "--progress"}


def test_the_job_gets_its_own_option_of_memory(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--mem", "9G", "--memory", "recompute", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --mem=9G" in done.stdout
    assert "--memory recompute" in done.stdout


def test_a_port_without_enough_after_it_is_refused(run: Run) -> None:
    options = ("digits", "--shards", "16", "--nodes", "2", "--gpus", "8", *CUDA, "--dry-run")
    done = run("launch", "slurm", *options, "--port", "65521")
    assert done.returncode == 2
    assert "16 workers need the ports from 65521 on, and 65535 is the last" in done.stderr
    assert "or another below 65521" in done.stderr
    assert run("launch", "slurm", *options, "--port", "65520").returncode == 0


def test_shards_that_workers_cannot_share_are_refused_first(run: Run) -> None:
    done = run("launch", "slurm", "--nodes", "3", "digits", "--shards", "4")
    assert done.returncode == 2
    assert "3 workers cannot share 4 shards" in done.stderr
    assert not list(run.folder.iterdir())
