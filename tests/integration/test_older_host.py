"""Debian 12 as the base image: its compilers, a stand-in wheel that they built, and an image of the published one."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.native_runs import WEIGHTS
from tests.unit.train.runs import ARGUMENTS
from toolkit.smoke import runner
from toolkit.versions import numbers
from toolkit.versions.table import load_table

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1200)]

BASE = "toolkit/base:python3.11-bookworm"
ROW = load_table().bases["bookworm"]


@pytest.fixture(scope="module", autouse=True)
def base() -> None:
    subprocess.run([str(stages.ROOT / "docker/base/bootstrap"), "--suite", "bookworm"], check=True)


SETS = {"19": {}, "22": {"TENSORFLOW_VERSION": "2.21.0", "CUDA_VERSION": "12.8.1"}}
"""What each of its compilers is for; without a value, the default set."""


@pytest.mark.parametrize("clang", ROW.clang)
def test_its_compilers_are_proven(tmp_path: Path, clang: str) -> None:
    arguments = {"BASE_IMAGE": BASE, "LLVM_VERSION": clang, "GCC_VERSION": ROW.gcc, "COMPUTE_CAPABILITIES": "7.5"}
    arguments |= SETS[clang]
    outcome = stages.build("toolchain-proof", output=tmp_path, arguments=arguments)
    assert outcome.code == 0, outcome.text
    found = json.loads((tmp_path / "toolchain.json").read_text())["versions"]
    assert found["clang"].startswith(f"{clang}.")
    assert found["libstdcxx"].startswith(f"{ROW.gcc}.")
    assert found["glibc"] == ROW.glibc


@pytest.mark.usefixtures("bazel")
def test_a_wheel_of_its_compilers_needs_no_newer_c_library(tmp_path: Path) -> None:
    """Check the wheel on the base image itself, by the check of smoke that runs before TensorFlow is imported."""
    done = Workspace(tmp_path).build("--base-image", BASE, "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / json.loads(done.stdout)["folder"]
    built = json.loads((folder / "toolchain.json").read_text())["versions"]
    assert (built["clang"].partition(".")[0], built["glibc"]) == (ROW.clang[0], ROW.glibc)
    mounts = (
        "--volume",
        f"{folder}:/wheel:ro",
        "--volume",
        f"{runner.FOLDER}:/checks:ro",
        "--env",
        "PYTHONPATH=/tmp/site",
    )
    command = "python3 -m pip install -q --no-index --no-deps --target /tmp/site /wheel/*.whl"
    command += " && python3 /checks --json --only libraries.system"
    argv = ["docker", "run", "--rm", "--network=none", *mounts, BASE, "sh", "-c", command]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    (found,) = (check for check in runner.parse(checked.stdout).checks if check.id == "libraries.system")
    told = found.facts["evidence"]
    assert told["here"]["GLIBC"] == ROW.glibc
    assert numbers.parse(told["needed"]["GLIBC"]) <= numbers.parse(ROW.glibc)


def test_its_image_passes_the_checks_and_trains_to_the_same_weights(tmp_path: Path) -> None:
    name = f"toolkit/test:{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "toolkit"]

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run([*command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    run("build-image", "--base-image", BASE, "--tag", name)
    try:
        found = runner.from_json(json.loads(run("smoke", "--image", name, "--json").stdout))
        evidence = {check.id: check.facts["evidence"] for check in found.checks}
        assert evidence["libraries.system"]["here"]["GLIBC"] == ROW.glibc
        out = tmp_path / "runs"
        out.mkdir(mode=0o777)
        out.chmod(0o777)
        train = ["docker", "run", "--rm", "--network", "none", "--volume", f"{out}:/runs", name]
        subprocess.run([*train, *ARGUMENTS, "--kernels", "native", "--out", "/runs"], check=True, capture_output=True)
        (manifest,) = out.glob("*/manifest.json")
        assert json.loads(manifest.read_text())["weights_sha256"] == WEIGHTS
    finally:
        subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)
