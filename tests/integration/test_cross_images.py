"""Wheels and images for ARM that are made on linux/amd64. QEMU runs their programs here, and no compiler."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.integration.docker import emulated, stages
from tests.integration.workspace import Workspace
from toolkit.smoke import runner
from toolkit.versions import settings

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
