"""A wheel for an RTX 5090, and its image: what is asked for most, and what no published wheel has code for."""

import json
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.workspace import Workspace
from tests.makers.build_image import NEEDS_GPU, NEEDS_TENSORFLOW
from tests.makers.smoke_images import failures
from toolkit.smoke import runner
from toolkit.wheel import inspection

pytestmark = [pytest.mark.engine, pytest.mark.weekly, pytest.mark.timeout(1200), pytest.mark.usefixtures("bazel")]


def build(workspace: Workspace, version: str, *asked: str) -> Path:
    """Build the stand-in wheel for capability 12.0, and return its folder."""
    stages.upgrade(workspace.source, version)
    done = workspace.build("--tensorflow", version, *asked, "--compute-capability", "12.0", "--json")
    assert done.returncode == 0, done.stderr
    folder = workspace.folder / json.loads(done.stdout)["folder"]
    proof = json.loads((folder / "toolchain.json").read_text())
    assert proof["capabilities"] == [{"asked": "sm_120", "cubin": "sm_120"}]
    assert proof["versions"]["clang"].startswith("22.")
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"tensorflow-{version}-cp311-cp311-linux_x86_64.whl"
    assert inspection.inspect(wheel).build.capabilities == ("compute_120",)
    return Path(folder)


def test_a_wheel_for_capability_12_0_is_built_by_the_proven_toolchain(tmp_path: Path) -> None:
    build(Workspace(tmp_path), "2.20.0", "--cuda", "12.8.1", "--cudnn", "9.8.0")


def test_the_image_of_such_a_wheel_passes_all_that_the_stand_in_can_answer(tmp_path: Path) -> None:
    workspace, asked = Workspace(tmp_path), ("--cuda", "12.8.1", "--cudnn", "9.10.2")
    folder = build(workspace, "2.21.0", *asked)
    skip = [word for name in NEEDS_TENSORFLOW for word in ("--skip", name)]
    with workspace.image("--tensorflow", "2.21.0", *asked, "--wheel", str(folder)) as made:
        print(f"image of the stand-in wheel: {made['bytes']} bytes")
        words = ("--image", made["image"], "--tensorflow", "2.21.0", *asked, "--expect-capability", "12.0", *skip)
        found = runner.from_json(json.loads(workspace.toolkit("smoke", *words, "--json").stdout))
    assert (found.verdict, failures(found)) == ("pass", {})
    silent = {
        check.id for check in found.checks if check.state == "skipped" and not check.id.startswith(NEEDS_TENSORFLOW)
    }
    assert silent == NEEDS_GPU
    evidence = {check.id: check.facts["evidence"] for check in found.checks}
    assert evidence["build.capabilities"]["covered_by"] == "compute_120 machine code"
    assert evidence["compiler.ptxas"]["assembled_for"] == "sm_120"
    assert evidence["libraries.versions"]["cudnnGetVersion"] == 91002
