import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.command import Run
from toolkit import training_job
from toolkit.engine import Environment, Job
from toolkit.engine.container import describe, list_commands, plan_cluster
from toolkit.engine.host import HostEngine
from toolkit.errors import JobError
from toolkit.launch import local
from toolkit.launch.local import LocalWorkers, divide, share_cores
from train.cli import parse

Make = Callable[..., LocalWorkers]

CUDA = ("--cuda", "12.6.1", "--cudnn", "9.5.0")

SEEN = "import json, os, sys; sys.stderr.write(json.loads(os.environ['TF_CONFIG'])['cluster']['worker'][{}])"
SAVE = (
    "import pathlib, signal, sys, time\n"
    "def end(*_): pathlib.Path(sys.argv[1]).touch(); sys.exit(130)\n"
    "signal.signal(signal.SIGTERM, end)\n"
    "pathlib.Path(sys.argv[1] + '.ready').touch(); time.sleep(60)"
)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return workers, each of which runs a program of its own."""
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / "venv").mkdir(exist_ok=True)
        (tmp_path / "venv" / name).symlink_to(Path(sys.prefix) / name)
    environment = Environment(kind="environment", digest="", reference=str(tmp_path), folder=tmp_path, reused=True)
    engine = HostEngine(tmp_path / "state")

    def make(*programs: tuple[str, ...], notice: float = 0.2) -> LocalWorkers:
        cluster = engine.plan_cluster(len(programs), outside=False)
        jobs = divide(Job(title="train", argv=(), grace=20), cluster, tmp_path)
        return LocalWorkers(
            engine,
            environment,
            [replace(job, argv=("-c", *words)) for job, words in zip(jobs, programs, strict=True)],
            notice,
        )

    return make


def test_each_worker_knows_the_others_and_is_heard_in_a_file(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    group = make((SEEN.format(0),), (SEEN.format(0),))
    assert group.run() == 0
    address = json.loads(group.jobs[1].environment["TF_CONFIG"])["cluster"]["worker"][0]
    assert group.jobs[1].log
    assert group.jobs[1].log.read_text() == address == capfd.readouterr().err


def test_a_worker_that_fails_ends_the_others_and_is_named(make: Make, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    fail = f"import pathlib, time\nwhile not pathlib.Path({str(saved)!r} + '.ready').exists(): time.sleep(0.01)\n"
    group = make((SAVE, str(saved)), (fail + "print('the reason'); raise SystemExit(9)",))
    with pytest.raises(JobError, match="exit code 9") as caught:
        group.run()
    assert saved.exists(), "worker 0 was asked to end, and saved"
    assert caught.value.exit_code == 9
    assert "worker 1 ended first, with exit code 9" in caught.value.why
    assert "the reason" in caught.value.why
    assert not caught.value.reported


def test_what_worker_0_says_of_a_lost_worker_is_the_result(make: Make) -> None:
    group = make(
        ("import time; time.sleep(0.5); raise SystemExit(10)",), ("import os; os.kill(os.getpid(), 9)",), notice=20
    )
    with pytest.raises(JobError, match="exit code 10") as caught:
        group.run()
    assert "worker 1 ended first, with exit code 137" in caught.value.why


def test_a_failure_of_worker_0_is_the_result_as_it_is(make: Make) -> None:
    assert make(("raise SystemExit(8)",), ("import time; time.sleep(60)",)).run() == 8


def test_a_worker_that_stays_after_the_end_is_ended(make: Make) -> None:
    assert make(("pass",), ("import time; time.sleep(60)",)).run() == 0


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_reaches_all_workers(make: Make, tmp_path: Path) -> None:
    saved = [tmp_path / "first", tmp_path / "second"]
    group = make(*((SAVE, str(path)) for path in saved))

    def interrupt() -> None:
        while not all(Path(f"{path}.ready").exists() for path in saved):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        group.run()
    assert all(path.exists() for path in saved)


def test_addresses_of_the_host_are_free_and_its_own() -> None:
    cluster = HostEngine(Path()).plan_cluster(3, outside=True)
    assert len(set(cluster.addresses)) == 3
    for address in cluster.addresses:
        host, _, port = address.partition(":")
        socket.create_server((host, int(port))).close()


@pytest.mark.parametrize(
    ("cores", "shares"),
    [([0, 1], [(0,), (1,)]), ([2, 3, 4], [(2,), (3,)]), ([5], [(5,), (5,)])],
)
def test_cores_are_shared_out(cores: list[int], shares: list[tuple[int, ...]]) -> None:
    assert [share_cores(cores, 2, index) for index in range(2)] == shares


def _divide(tmp_path: Path, count: int = 2) -> list[Job]:
    arguments = ["cifar10", "--out", str(tmp_path / "runs"), "--cache-dir", str(tmp_path / "data")]
    job = training_job.plan(arguments, parse(arguments), None, gpu=True)
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0,1"):
        return divide(job, plan_cluster(count, outside=True), tmp_path)


def test_worker_0_alone_sees_the_run_and_each_has_a_gpu(tmp_path: Path) -> None:
    chief, other = (describe(job, image="i") for job in _divide(tmp_path))
    assert {target for _, target, read_only in chief.mounts if not read_only} - {"/data"}
    assert [target for _, target, _ in other.mounts] == ["/data"]
    assert chief.argv == other.argv
    assert chief.network == other.network not in {"none", "bridge"}
    requests = [asked.to_sdk()["device_requests"][0] for asked in (chief, other)]
    assert [request["DeviceIDs"] for request in requests] == [["0"], ["1"]]
    assert [request["Count"] for request in requests] == [0, 0]


def test_the_printed_containers_find_each_other(tmp_path: Path) -> None:
    jobs = _divide(tmp_path)
    cluster = jobs[0].cluster
    assert cluster
    for index, job in enumerate(jobs):
        command = list_commands(job, image="i")[-1]
        assert command[command.index("--name") + 1] == cluster.addresses[index].partition(":")[0]
        assert command[command.index("--network") + 1] == cluster.network in cluster.make[0]
        assert ("--detach" in command) == (index > 0)
        assert command[command.index("--gpus") + 1] == f"device={index}"
    assert "--internal" not in cluster.make[0]
    assert "--internal" in plan_cluster(1, outside=False).make[0]


def test_more_workers_than_gpus_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "list_gpus", lambda: ["0"])
    done = run("launch", "local", "digits", "--shards", "2", "--engine", "host", "--gpu", *CUDA, "--dry-run")
    assert done.returncode == 4
    assert "2 workers need a GPU each, and this machine has 1" in done.stderr
    assert "--workers 1" in done.stderr


def test_workers_get_the_granted_gpus_and_no_others(run: Run) -> None:
    options = ("launch", "local", "digits", "--shards", "2", "--engine", "host", "--gpu", *CUDA, "--dry-run")
    done = run(*options, CUDA_VISIBLE_DEVICES="2,GPU-5")
    assert done.returncode == 0, done.stderr
    workers = [line for line in done.stdout.splitlines() if "TF_CONFIG" in line]
    assert ["CUDA_VISIBLE_DEVICES=GPU-5" in line for line in workers] == [True, False]
    assert "CUDA_VISIBLE_DEVICES=2 " in workers[1]
    for granted in ("2", "2,-1,3"):
        done = run(*options, CUDA_VISIBLE_DEVICES=granted)
        assert done.returncode == 4
        assert "2 workers need a GPU each, and CUDA_VISIBLE_DEVICES grants 1" in done.stderr


def test_a_dry_run_prints_a_command_for_each_worker(run: Run) -> None:
    done = run("launch", "local", "digits", "--shards", "4", "--workers", "4", "--engine", "host", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "TF_CONFIG" in line]
    assert len(lines) == 4
    assert '"index": 0' in lines[-1]
    assert "each of the last 4 commands needs a shell of its own" in done.stderr
    assert not run.started


@pytest.mark.parametrize("how", ["local --workers", "slurm --nodes"])
def test_shards_that_workers_cannot_share_are_refused_first(run: Run, how: str) -> None:
    done = run("launch", *how.split(), "3", "digits", "--shards", "4")
    assert done.returncode == 2
    assert "3 workers cannot share 4 shards equally" in done.stderr
    assert not list(run.folder.iterdir())
