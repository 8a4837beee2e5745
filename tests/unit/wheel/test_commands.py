import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.command import Run

MINI = Path(__file__).parents[2] / "fixtures/mini_tensorflow"


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
        (["--cuda", "12.6.1", "--cudnn", "9.11.0", "--compute-capability", "7.0"], 3, "GPUs before Turing"),
        (["--cuda", "12.6.1"], 2, "give both, such as --cuda 12.6.1 --cudnn 9.5.0"),
        (["--compute-capability", "3.5"], 3, "TensorFlow 2.14 was the last"),
        (["--cuda", "twelve", "--cudnn", "9.5.0"], 2, "not a version of CUDA"),
        (["--source", "nowhere"], 2, "no source tree"),
        (["--remote-cache", "https://user:pw@cache", "--dry-run"], 2, "remote-cache has a user or a password"),
        (["--apt-snapshot", "yesterday", "--dry-run"], 2, "not a snapshot's day"),
        (["--tensorflow", "2.20.0", "--source", str(MINI)], 3, "is TensorFlow 2.19.0, and TensorFlow 2.20.0"),
        (["--downloads", ".", "--dry-run"], 2, "has neither of distdir and repository_cache"),
        ([], 5, "container engine"),
    ],
)
def test_refusals_cost_nothing_and_leave_nothing(run: Run, arguments: list[str], code: int, message: str) -> None:
    done = run("build-wheel", *arguments)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert list(run.folder.iterdir()) == []
    assert {*run.started} <= ({"git"} if str(MINI) in arguments else set()), "a source tree is asked for its commit"


def test_dry_run_prints_the_command_and_needs_no_engine(run: Run) -> None:
    done = run("build-wheel", "--cuda", "12.6.1", "--cudnn", "9.5.0", "--dry-run")
    assert done.returncode == 0, done.stderr
    argv = shlex.split(done.stdout)
    assert argv[:3] == ["docker", "buildx", "build"]
    assert argv[argv.index("--target") + 1] == "wheel-from-source"
    assert "COMPUTE_CAPABILITIES=compute_75" in argv
    assert "base-digest is not pinned" in done.stderr
    assert re.search(r"machine +TensorFlow from source: \d+ jobs, about \d+ h", done.stderr)
    assert not re.search(r"P\d+: ", done.stderr)
    assert "--verbose" in done.stderr
    assert "P13: " in run("build-wheel", "--dry-run", "--verbose").stderr
    assert list(run.folder.iterdir()) == []
    value = json.loads(run("build-wheel", "--dry-run", "--json").stdout)
    assert value["commands"] == [argv]
    assert [step["commands"] for step in value["plan"]["steps"]] == [[argv]]


def test_lock_says_what_floats_and_is_read_by_the_build(run: Run) -> None:
    done = run("lock", "--apt-snapshot", "20261121T000000Z")
    assert done.returncode == 0, done.stderr
    assert "base-digest is not pinned" in done.stdout
    written = yaml.safe_load((run.folder / "toolkit.lock.yaml").read_text())
    assert written["pins"]["apt-snapshot"] == "20261121T000000Z"
    assert run("lock", "--check").returncode == 0
    assert "APT_SNAPSHOT=20261121T000000Z" in run("build-wheel", "--dry-run").stdout


def test_workers_for_a_wheel_without_cuda_get_an_image_of_their_own(run: Run) -> None:
    done = run("build-image", "--target", "bazel-worker", "--cuda", "none", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "--tag toolkit/bazel-worker:cpu-" in done.stdout
    assert "--build-arg DEVICE=cpu" in done.stdout
    assert "CUDA" not in done.stdout
