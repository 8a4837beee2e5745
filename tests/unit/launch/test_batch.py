import math
import os
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import typer

from tests.command import Run
from toolkit.cli import workers
from toolkit.jobs.training_job import GRACE_SECONDS
from toolkit.launch import batch
from toolkit.launch.batch import SlurmRequest, find_gpu_types, read_seconds, write_slurm
from train.command_line import _collect, make_app

CUDA = ("--cuda", "12.6.1", "--cudnn", "9.5.0")


def test_the_script_for_slurm_is_one_that_bash_reads(tmp_path: Path) -> None:
    options = ("--qos", "long", "--comment", "a b")
    request = SlurmRequest(nodes=3, cpus=4, gpus=2, gpu_type="a100", options=options, port=3000)
    assert request.workers == 6
    script = write_slurm("toolkit-x", ["env", "A=b c", "python", "-m", "train"], request)
    lines = script.splitlines()
    directives = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert directives >= {
        "--nodes=3",
        "--ntasks-per-node=2",
        "--gpus-per-task=a100:1",
        "--cpus-per-task=4",
        "--qos long --comment 'a b'",
        "--requeue",
        f"--signal=TERM@{2 * GRACE_SECONDS}",
    }
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1].startswith("#SBATCH"), "Slurm reads no directive after a command"
    assert "@" not in script.replace("TERM@", "")
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
    script = write_slurm("x", ["echo", *words], SlurmRequest(nodes=1))
    command = script.partition("srun ")[2].partition("\ncode=")[0]
    assert shlex.split(command)[-len(words) :] == words


STEP = """#!/bin/bash
echo "$@" > arguments
trap 'echo saved > saved; exit 130' TERM
echo $$ > pid
touch ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("sent", "restarts", "requeued"), [("step", 0, True), ("step", 100, False), ("all", 0, False)])
def test_the_job_goes_back_to_the_queue_if_only_its_workers_are_stopped(
    tmp_path: Path, sent: str, restarts: int, requeued: bool
) -> None:
    """Slurm's programs are stand-ins here; a real Slurm is in the tests with containers."""
    for name, text in (("srun", STEP), ("scontrol", '#!/bin/bash\necho "$@" > requeued\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = write_slurm("x", ["python", "-m", "train"], SlurmRequest(nodes=2))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(restarts)}
    argv = ["bash", "-c", script]
    with subprocess.Popen(argv, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
        if sent == "all":
            process.terminate()
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130
    assert ("goes back to the queue" in said) == requeued
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "requeued").exists() == requeued
    assert (tmp_path / "arguments").read_text().endswith("python -m train\n")


def test_a_job_that_fails_does_not_go_back_to_the_queue(tmp_path: Path) -> None:
    (tmp_path / "srun").write_text("#!/bin/bash\nexit 3\n")
    (tmp_path / "srun").chmod(0o755)
    script = write_slurm("x", ["python"], SlurmRequest(nodes=1))
    done = subprocess.run(["bash", "-c", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, check=False)
    assert done.returncode == 3


def test_a_machine_without_slurm_can_print_and_not_submit(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--dry-run", "--interpreter", "/opt/python")
    assert done.returncode == 0, done.stderr
    assert "/opt/python -P -m train.peers slurm digits --shards 2" in done.stdout
    assert ("the partition, its limit and its GPUs are not checked" in done.stderr) == (shutil.which("sbatch") is None)
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
    assert not batch.OF_SBATCH & (own | job)
    # A job on this machine is told how progress is shown. One of a scheduler has no terminal, so it prints lines.
    assert own & job <= {"dataset", "--json", "--progress"}


def test_options_after_two_dashes_are_those_of_slurm(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--memory", "recompute", "--dry-run", "--", "--mem", "9G")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --mem 9G" in done.stdout
    assert "--memory recompute" in done.stdout


@pytest.mark.parametrize(
    ("option", "limit", "short"),
    [
        ("--time=0:05:00", "", True),
        ("", "5", True),
        ("-t 10", "", False),
        ("--time 4:00", "20", True),
        ("-t0:05:00", "", True),
        ("", "", False),
    ],
)
def test_a_limit_that_leaves_hardly_time_to_train_is_named(run: Run, option: str, limit: str, short: bool) -> None:
    options = ("digits", "--nodes", "1", "--dry-run", "--", *option.split())
    done = run("launch", "slurm", *options, SBATCH_TIMELIMIT=limit)
    assert done.returncode == 0, done.stderr
    assert ("with less than 10 minutes little is left" in done.stderr) == short


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--time 4:00:00", "as in `-- --time 4:00:00`"),
        ("--partition=gpu", "as in `-- --partition gpu`"),
        ("-- --nodes 2", "give --nodes before `--`"),
        ("-- --ntasks=4", "give --nodes or --gpus before `--`"),
        ("-- -G 1", "give --gpus before `--`"),
        ("-- --gres=gpu:1", "give --gpus before `--`"),
        ("-- --no-requeue", "leave --no-requeue out"),
        ("-- --array 0-3", "leave --array out"),
        ("-- --signal=INT@9", "leave --signal out"),
        ("-- --time 3", "a limit of 180 seconds leaves no time to train"),
        ("--gpus h100_1g.10gb:1", "`h100_1g.10gb` is no card of the toolkit's table"),
    ],
)
def test_what_cannot_be_told_to_slurm_in_this_way_is_refused(run: Run, words: str, said: str) -> None:
    done = run("launch", "slurm", "digits", "--nodes", "1", "--dry-run", *words.split(), PATH="/nowhere")
    assert done.returncode == 2
    assert said in done.stderr


def test_gpus_whose_type_nobody_names_ask_for_the_card(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--nodes", "1", "--gpus", "1", "--dry-run", PATH="/nowhere")
    assert done.returncode == 2
    assert "such as --card A100" in done.stderr
    assert run("launch", "slurm", "digits", "--nodes", "1", "--gpus", "1", *CUDA, "--dry-run").returncode == 0


def test_a_port_without_enough_after_it_is_refused(run: Run) -> None:
    options = ("digits", "--shards", "16", "--nodes", "2", "--gpus", "8", *CUDA, "--dry-run")
    done = run("launch", "slurm", *options, "--port", "65521")
    assert done.returncode == 2
    assert "16 workers need the ports from 65521 on, and 65535 is the last" in done.stderr
    assert "or another below 65521" in done.stderr
    assert run("launch", "slurm", *options, "--port", "65520").returncode == 0


@pytest.mark.parametrize("text", ["", "four", "a100:", "a 1:2", "-1"])
def test_gpus_that_are_no_number_are_refused(run: Run, text: str) -> None:
    done = run("launch", "slurm", "digits", f"--gpus={text}", "--dry-run")
    assert done.returncode == 2
    assert "such as --gpus 4 or --gpus a100:4" in done.stderr


@pytest.mark.parametrize(
    ("driver", "said"), [("550.54.15", "too old to compile"), ("570.124.06", "as published"), ("", "as published")]
)
def test_the_type_of_the_gpus_and_their_driver_decide_what_the_job_needs(run: Run, driver: str, said: str) -> None:
    options = ["--driver", driver] if driver else []
    done = run("launch", "slurm", "digits", "--shards", "2", "--gpus", "h100:1", *options, "--dry-run")
    assert (said in done.stderr) == (said != "as published")
    made = "`toolkit graft --compute-capability 9.0` makes it in minutes; then give this command again with --wheel"
    assert (made in done.stderr) == (said != "as published")
    assert done.returncode == (0 if said == "as published" else 12), done.stderr


SINFO = """#!/bin/sh
echo 'cpu|(null)'
echo 'short*|gpu:a100:4(S:0-1),nvme:1'
echo 'mixed|gpu:a100:4'
echo 'mixed|gpu:h100:8'
"""


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ((), ("a100",)),
        (("--partition=mixed",), ("a100", "h100")),
        (("-p", "cpu"), ()),
        (("--partition", "cpu,mixed"), ("a100", "h100")),
    ],
)
def test_the_gpus_of_a_partition_are_those_that_slurm_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], types: tuple[str, ...]
) -> None:
    """The program that names them is a stand-in here; a real one is in the tests with containers."""
    (tmp_path / "sinfo").write_text(SINFO)
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("SBATCH_PARTITION", raising=False)
    assert find_gpu_types(SlurmRequest(nodes=1, options=options).partition) == types


@pytest.mark.parametrize(
    ("srun", "driver"),
    [
        ("echo 550.54.15", "550.54.15"),
        ("echo 'a message of the site'; echo 570.124.06", "570.124.06"),
        ("echo 'NVIDIA-SMI has failed'; exit 9", ""),
        ("echo 'srun: error: Unable to allocate resources' >&2; exit 1", ""),
        ("exec sleep 20", ""),
    ],
)
def test_a_node_is_asked_for_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, srun: str, driver: str
) -> None:
    (tmp_path / "srun").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{srun}\n')
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SBATCH_ACCOUNT", "lab")
    monkeypatch.setattr(batch, "_DRIVER_SECONDS", 2)
    options = ("-p", "gpu", "--qos=long", "--mem=128G", "--time", "9:00:00")
    assert batch.ask_driver(SlurmRequest(nodes=2, gpus=4, gpu_type="a100", options=options)) == driver
    asked = (tmp_path / "asked").read_text().split()
    assert {"--partition=gpu", "--qos=long", "--account=lab", "--gpus-per-node=a100:1", "--time=1"} <= {*asked}
    assert "--mem=128G" not in asked


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("30", 1800),
        ("30:00", 1800),
        ("4:00:00", 14400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("1-12:00:00", 129600),
        ("infinite", math.inf),
        ("4h", math.inf),
        ("NOT_SET", 0),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_and_prints_it(limit: str, seconds: float) -> None:
    assert read_seconds(limit) == seconds


def test_shards_that_workers_cannot_share_are_refused_first(run: Run) -> None:
    done = run("launch", "slurm", "--nodes", "3", "digits", "--shards", "4")
    assert done.returncode == 2
    assert "3 workers cannot share 4 shards equally\n" in done.stderr
    done = run("launch", "slurm", "digits")
    assert "2 workers cannot share 1 shard equally (--nodes is 2 unless you give it)" in done.stderr
    assert not list(run.folder.iterdir())
