import json
import os
import re
import shlex

import pytest
import yaml

from tests.command import Run
from toolkit.base import project


def test_a_wheel_for_an_rtx_5090_is_planned_without_a_network(run: Run) -> None:
    words = ("--tensorflow", "2.21.0", "--cuda", "12.8.1", "--cudnn", "9.8.0", "--compute-capability", "12.0")
    done = run("build-wheel", *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "COMPUTE_CAPABILITIES=compute_120" in done.stdout
    assert "LLVM_VERSION=22" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--cuda", "12.6", "--cudnn", "9.5.0"], 3, "--cuda 12.6.1 --cudnn 9.5.0"),
        (["--cuda", "12.9.1", "--cudnn", "9.5.0"], 3, "has no CUDA 12.9.1"),
        (["--cuda", "12.6.1", "--cudnn", "9.11.0", "--compute-capability", "7.0"], 3, "GPUs before Turing"),
        (["--cuda", "12.6.1", "--cudnn", "8.9.7.29"], 3, "nothing with it since 2.17"),
        (["--compute-capability", "10.0"], 3, "does not know compute capability 10.0"),
        (["--python", "3.13"], 3, "--python 3.12"),
        (["--tensorflow", "2.19.7"], 3, "--tensorflow 2.19.1"),
        (["--tensorflow", "2.17.0"], 3, "--tensorflow 2.18.0"),
        (["--cuda", "12.6.1"], 2, "give both, such as --cuda 12.6.1 --cudnn 9.5.0"),
        (["--cudnn", "9.5"], 2, "9.5 is not a full x.y.z"),
        (["--cuda", "12.6.1", "--cudnn", "9.5.0.50"], 3, "9.5.0.50 is the number of a wheel"),
        (["--compute-capability", "3.5"], 3, "TensorFlow 2.14 was the last"),
        (["--cuda", "twelve", "--cudnn", "9.5.0"], 2, "not a version of CUDA"),
        (["--compute-capability", "seven"], 2, "not a compute capability"),
        (["--source", "nowhere"], 2, "no source tree"),
        (["--remote-cache", "https://user:pw@cache", "--dry-run"], 2, "remote-cache has a user or a password"),
        (["--apt-snapshot", "yesterday", "--dry-run"], 2, "not a snapshot's day"),
        ([], 5, "no container engine answers"),
    ],
)
def test_refusals_cost_nothing_and_leave_nothing(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run("build-wheel", *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(run.folder.iterdir()) == []
    assert run.started == []


def test_a_program_that_a_command_starts_is_noted(run: Run) -> None:
    program = run.folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    run("doctor", "--offline", "--engine", "host", PATH=f"{run.folder}:{os.environ['PATH']}")
    assert str(program) in run.started


def test_dry_run_prints_the_command_and_needs_no_engine(run: Run) -> None:
    done = run("build-wheel", "--cuda", "12.6.1", "--cudnn", "9.5.0", "--dry-run")
    assert done.returncode == 0, done.stderr
    argv = shlex.split(done.stdout)
    assert argv[:3] == ["docker", "buildx", "build"]
    assert argv[argv.index("--target") + 1] == "wheel-from-source"
    assert "COMPUTE_CAPABILITIES=compute_75" in argv
    assert "base-digest is not pinned" in done.stderr
    assert not re.search(r"P\d+: ", done.stderr)
    assert "--verbose" in done.stderr
    assert "P13: " in run("build-wheel", "--dry-run", "--verbose").stderr
    assert list(run.folder.iterdir()) == []
    value = json.loads(run("build-wheel", "--dry-run", "--json").stdout)
    assert value["commands"] == [argv]


def test_lock_says_what_floats_and_is_read_by_the_build(run: Run) -> None:
    done = run("lock", "--apt-snapshot", "20261121T000000Z")
    assert done.returncode == 0, done.stderr
    assert "base-digest is not pinned" in done.stdout
    written = yaml.safe_load((run.folder / "toolkit.lock.yaml").read_text())
    assert written["pins"]["apt-snapshot"] == "20261121T000000Z"
    assert run("lock", "--check").returncode == 0
    assert "APT_SNAPSHOT=20261121T000000Z" in run("build-wheel", "--dry-run").stdout


def test_lock_that_no_longer_fits_fails(run: Run) -> None:
    assert run("lock", "--check").returncode == 7, "there is none yet"
    assert run("lock").returncode == 0
    path = run.folder / "toolkit.lock.yaml"
    lock = yaml.safe_load(path.read_text())
    lock["pins"]["bazel_patches/headers/clang-17/series"] = "sha256:" + "0" * 64
    path.write_text(yaml.safe_dump(lock))
    for command in (["lock", "--check"], ["build-wheel", "--dry-run"]):
        done = run(*command)
        assert done.returncode == 7
        assert "bazel_patches/headers/clang-17/series" in done.stderr
    assert run("lock").returncode == 0
    assert run("lock", "--check").returncode == 0


def test_verify_names_what_is_no_result(run: Run) -> None:
    for place, code in (("nowhere", 2), (str(project.ROOT / "docker"), 8)):
        done = run("verify", place)
        assert done.returncode == code
        assert "Traceback" not in done.stderr


def test_workers_for_a_wheel_without_cuda_get_an_image_of_their_own(run: Run) -> None:
    done = run("build-image", "--target", "bazel-worker", "--cuda", "none", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--tag toolkit/bazel-worker:cpu-" in done.stdout
    assert "--build-arg DEVICE=cpu" in done.stdout
    assert "CUDA" not in done.stdout
