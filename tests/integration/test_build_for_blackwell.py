"""A wheel for an RTX 5090: what is asked for most, and what no published wheel has code for."""

import json
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.integration.place import Place
from toolkit.wheel import inspection

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200), pytest.mark.usefixtures("bazel")]


@pytest.mark.parametrize("version", ["2.20.0", "2.21.0"])
def test_a_wheel_for_capability_12_0_is_built_by_the_proven_toolchain(version: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    stages.upgrade(place.source, version)
    asked = ("--tensorflow", version, "--cuda", "12.8.1", "--cudnn", "9.8.0", "--compute-capability", "12.0")
    done = place.build(*asked, "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / json.loads(done.stdout)["folder"]
    proof = json.loads((folder / "toolchain.json").read_text())
    assert proof["capabilities"] == [{"asked": "sm_120", "cubin": "sm_120"}]
    assert proof["versions"]["clang"].startswith("22.")
    (wheel,) = folder.glob("*.whl")
    assert wheel.name == f"tensorflow-{version}-cp311-cp311-linux_x86_64.whl"
    assert inspection.inspect(wheel).build.capabilities == ("compute_120",)
