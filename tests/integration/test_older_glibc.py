"""Wheels for glibc 2.28: what the sysroot makes runs on Debian 11 (glibc 2.31), the oldest that its mirrors carry."""

import json
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from toolkit.versions import numbers
from toolkit.wheel import elf

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1200)]

OLDER = stages.ROOT / "tests/fixtures/older_host"
FLAGS = "-std=c++17 -O1 -fuse-ld=lld"
COMPILE = f"""
clang++-17 {FLAGS} -fPIC -shared -fvisibility=hidden /source/library.cc -o /out/library.so -pthread
clang++-17 {FLAGS} /source/program.cc -o /out/program -Wl,--no-as-needed -ldl -pthread
"""
"""A program of that time is linked to libpthread: Python is. Otherwise libstdc++ believes that there are no threads."""


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """Make an image of Debian 11 with its Python; skip the test where no mirror has it any more."""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)"]
    places = {
        item.rstrip("/") for item in subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    }
    mirror = next((item for item in sorted(places) if item.endswith("/debian")), "")
    argv = [
        "mmdebstrap",
        "--quiet",
        "--variant=apt",
        "--include=python3",
        "bullseye",
        "-",
        f"deb {mirror} bullseye main",
    ]
    made = subprocess.run(argv, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no mirror of this machine has Debian 11 any more: {made.stderr[-300:].decode(errors='replace')}")
    name = f"toolkit/test:bullseye-{uuid.uuid4().hex[:8]}"
    subprocess.run(["docker", "import", "-", name], input=made.stdout, check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)


@pytest.fixture(scope="module")
def toolchain() -> Iterator[str]:
    name = f"toolkit/test:glibc-{uuid.uuid4().hex[:8]}"
    outcome = stages.build("toolchain-prover", tag=name, arguments={"GLIBC": "2.28"})
    assert outcome.code == 0, outcome.text
    yield name
    subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)


def test_exceptions_threads_and_streams_work_on_an_older_host(toolchain: str, host: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    mounts = [f"--volume={OLDER}:/source:ro", f"--volume={tmp_path}:/out"]
    stages.run(toolchain, "sh", "-ec", COMPILE, options=mounts)
    said = stages.run(host, "/out/program", "/out/library.so", options=[f"--volume={tmp_path}:/out:ro"])
    assert said.splitlines() == ["glibc 2.31, caught 15", "library 4095"]
    shown = stages.run(toolchain, "llvm-readelf-17", "--version-info", "/out/library.so", options=mounts)
    needed = elf.find_highest(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([0-9.]+)", shown))
    newest = {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11"}
    assert all(numbers.parse(needed[name]) <= numbers.parse(newest[name]) for name in newest)


@pytest.mark.usefixtures("bazel")
def test_a_wheel_says_2_28_and_runs_on_an_older_host(host: str, tmp_path: Path) -> None:
    done = Workspace(tmp_path).build("--glibc", "2.28", "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / json.loads(done.stdout)["folder"]
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == "tensorflow-2.19.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    facts = json.loads((folder / "manifest.json").read_text())["facts"]
    assert numbers.parse(facts["inspection"]["symbols"]["GLIBC"]) <= (2, 28)
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    script = "import tensorflow; print(tensorflow.total('1 2 3.5'), tensorflow.float128_digits())"
    mounts = [f"--volume={tmp_path / 'site'}:/site:ro", "--env=PYTHONPATH=/site"]
    assert stages.run(host, "python3", "-B", "-c", script, options=mounts) == "6.5 113\n"
