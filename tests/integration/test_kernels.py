"""TensorFlow's own GPU kernels are compiled out of the tree before Bazel is started."""

import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import edit
from tests.tiers import find_repository, needs_upstream

pytestmark = [pytest.mark.engine, pytest.mark.slow]

FILL = "tensorflow/core/kernels/fill.cu.cc"
ENDINGS = ("h", "cc", "inc")
UNFINISHED = "tensorflow/core/kernels/unfinished.cu.cc"


def test_a_kernel_that_does_not_compile_ends_the_command_before_bazel(workspace: Workspace) -> None:
    edit(workspace.source / FILL, "float value)", "flaot value)")
    (workspace.source / UNFINISHED).write_text('#include "tensorflow/core/framework/unfinished.pb.h"\n')
    done = workspace.build("--prove-kernels", "all")
    assert done.returncode == 7, done.stderr
    assert "1 of 2 files of GPU kernels do not compile" in done.stderr
    assert f"{FILL}: compiler: " in done.stderr
    assert "unknown type name 'flaot'" in done.stderr
    assert workspace.results == []
    assert not list((workspace.folder / "state").glob("wheel-*/bazel")), "Bazel was not started"
    (report,) = (workspace.folder / "state").glob("wheel-*/kernels.json")
    rows = {row["file"]: row for row in json.loads(report.read_text())["kernels"]}
    assert rows[UNFINISHED]["cause"] == "missing header", "Bazel would make it: no failure of the toolchain"

    edit(workspace.source / FILL, "flaot value)", "float value)")
    done = workspace.build("--prove-kernels", "all")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 files compile for sm_75, 1 kernels, at most" in done.stderr
    assert "1 need a header that only Bazel has" in done.stderr
    assert len(workspace.results) == 1


@pytest.mark.weekly
@pytest.mark.timeout(1800)
@needs_upstream
def test_kernels_of_tensorflows_own_tree_compile(workspace: Workspace) -> None:
    """Compiles six of them. The tree lacks the package of the wheel, so Bazel has nothing to build after that."""
    table = yaml.safe_load((stages.ROOT / "docker/flags.yaml").read_text())
    source, tree = table["sources"]["rc-2.21"], workspace.folder / "tensorflow"
    # A copy of the repository may lack the largest files, which are data of tests.
    wanted = [f":(glob){folder}/**/*.{ending}" for folder in ("tensorflow/core", "third_party") for ending in ENDINGS]
    wanted += ["tensorflow/tf_version.bzl", "tensorflow/workspace0.bzl", ".bazelversion", "configure"]
    argv = ["git", "-C", str(find_repository(source["repository"])), "archive", source["commit"], *wanted]
    packed = subprocess.run(argv, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")
    for path in filter(Path.is_file, tree.rglob("*")):
        path.write_bytes(path.read_bytes().replace(b"\r\n", b"\n"))  # this copy was committed on Windows
    workspace.source = tree
    asked = ("--tensorflow", "2.21.0", "--cuda", "12.8.1", "--cudnn", "9.10.2", "--compute-capability", "12.0")
    done = workspace.build(*asked, "--prove-kernels", "6")
    assert "6 of 6 files compile for sm_120" in done.stderr, done.stderr[-4000:]
    assert done.returncode != 0
    assert workspace.results == []
