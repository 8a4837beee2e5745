"""Wheels and images for ARM that are made on linux/amd64. QEMU runs their programs here, and no compiler."""

import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.docker import emulated, stages
from tests.integration.workspace import Workspace
from toolkit import settings, versions
from toolkit.errors import CheckError
from toolkit.smoke import runner
from toolkit.wheel import inspection

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(settings.find_own_platform() != "linux/amd64", reason="made on linux/amd64"),
]

ARM = ("--platform", "linux/arm64")


def list_machines(image: str, tmp_path: Path) -> set[int]:
    """Return the numbers of the processors of all ELF files in an image."""
    made = subprocess.run(["docker", "create", image], capture_output=True, text=True, check=True).stdout.strip()
    try:
        with (tmp_path / "image.tar").open("wb") as file:
            subprocess.run(["docker", "export", made], stdout=file, check=True)
    finally:
        subprocess.run(["docker", "rm", made], capture_output=True, check=True)
    found = set()
    with tarfile.open(tmp_path / "image.tar") as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isfile() else None
            if content and (head := content.read(20))[:4] == b"\x7fELF":
                found.add(int.from_bytes(head[18:20], "little"))
    return found


@pytest.mark.weekly
def test_an_image_for_arm_is_made_here_checked_and_has_kernels_with_the_bits_of_x86(tmp_path: Path) -> None:
    emulated.bootstrap()
    workspace = Workspace(tmp_path)
    with workspace.image(*ARM) as value, emulated.emulate(value["image"]) as image:
        manifest = json.loads((tmp_path / value["manifest"]).read_text())
        assert manifest["digest"] == value["digest"]
        assert manifest["facts"]["platform"] == "linux/arm64"
        assert manifest["facts"]["base"]["name"] == emulated.BASE
        assert list_machines(value["image"], tmp_path) == {183}, "Arm's, in ELF"
        assert workspace.toolkit("verify", value["image"]).returncode == 0

        done = workspace.toolkit("smoke", "--image", image, "--device", "cpu", "--json")
        assert done.returncode == 0, done.stderr
        report = runner.from_json(json.loads(done.stdout))
        passed = {check.id for check in report.checks if check.state == "ok"}
        assert {"tensorflow.import", "version.wheel", "version.files", "xla.agrees", "determinism.training"} <= passed

        # The kernels compare their results with those of x86, to the bit.
        program = "from train.native import library; print(library.find().instructions)"
        assert stages.run(image, "-c", program, options=("--entrypoint", "python")).strip() == "neon"


@pytest.mark.weekly
@pytest.mark.usefixtures("bazel")
def test_a_wheel_for_arm_is_cross_compiled_by_bazel_and_runs_in_an_image_for_arm(
    tmp_path: Path, new_cache: Callable[[], str]
) -> None:
    """The stand-in's: no TensorFlow, and so nothing that computes."""
    emulated.bootstrap()
    workspace = Workspace(tmp_path)
    stages.upgrade(workspace.source, "2.21.0")
    asked = {"cuda": "12.8.1", "cudnn": "9.10.2", "python": "3.11", "capabilities": "compute_90", "clang": "22"}
    spec = versions.choose_versions(
        versions.load_table(), tensorflow="2.21.0", cuda=asked["cuda"], cudnn=asked["cudnn"]
    )
    out = tmp_path / "wheel"
    given = {
        "PROVER": "cross-prover",
        "TARGET_MACHINE": "aarch64",
        "TENSORFLOW_VERSION": "2.21.0",
        "LLVM_VERSION": asked["clang"],
        "CUDA_VERSION": asked["cuda"],
        "CUDNN_VERSION": asked["cudnn"],
        "COMPUTE_CAPABILITIES": "9.0",
        "BAZEL_ARGUMENTS": " ".join(spec.bazel_arguments),
    }
    done = stages.build_mini(workspace.source, cache=new_cache(), output=out, arguments=given)
    assert done.code == 0, done.text
    (wheel,) = out.glob("*.whl")
    assert wheel.name == "tensorflow-2.21.0-cp311-cp311-linux_aarch64.whl"
    found = inspection.inspect(wheel)
    inspection.require_match(found, {**asked, "tensorflow": "2.21.0", "platform": "linux/arm64"})
    with pytest.raises(CheckError, match="it is for linux_aarch64, not x86_64"):
        inspection.require_match(found, {**asked, "tensorflow": "2.21.0", "platform": "linux/amd64"})

    words = ("--tensorflow", "2.21.0", "--wheel", str(wheel), "--target", "runtime")
    refused = workspace.toolkit("build-image", *words)
    assert (refused.returncode, "is for linux_aarch64, not x86_64" in refused.stderr) == (3, True)
    left_out = ("cpu.onednn", "numerics", "xla", "determinism", "libraries", "compiler")
    with workspace.image(*ARM, *words) as value, emulated.emulate(value["image"]) as image:
        skip = [word for name in left_out for word in ("--skip", name)]
        ran = workspace.toolkit("smoke", "--image", image, "--tensorflow", "2.21.0", "--device", "cpu", "--json", *skip)
        assert ran.returncode == 0, ran.stderr
        report = runner.from_json(json.loads(ran.stdout))
        assert {check.id for check in report.checks if check.state == "ok"} == {
            *("cpu.instructions", "tensorflow.import"),
            *("version.tensorflow", "version.wheel", "version.dependencies", "version.files"),
            *("build.info", "build.cuda", "build.capabilities"),
        }
