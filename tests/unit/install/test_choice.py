from pathlib import Path

import pytest

from tests.unit.wheel.maker import MEMBER as BUILD_INFO
from tests.unit.wheel.maker import make_build_info, make_wheel
from toolkit import digest, manifest
from toolkit.errors import UnsupportedError
from toolkit.install import choice
from toolkit.settings import resolve


def make_own_wheel(folder: Path, *, cuda: str = "12.5.1", version: str = "2.21.0", tag: str = "cp311-cp311") -> Path:
    folder.mkdir()
    content = {BUILD_INFO: make_build_info("compute_75", cuda=cuda)}
    return make_wheel(folder, version=version, tag=f"{tag}-linux_x86_64", files=content)


def test_the_set_of_a_wheel_is_that_of_its_record(tmp_path: Path) -> None:
    wheel = make_own_wheel(tmp_path / "dist", cuda="12.6.1", version="2.19.0")
    spec = {"tensorflow": "2.19.0", "python": "3.11", "cuda": "12.6.1", "cudnn": "9.5.0"}
    record = manifest.Manifest(
        kind="wheel", digest=digest.digest_file(wheel), facts={"lock": {"schema": 1, "spec": spec, "pins": {}}}
    )
    manifest.write(wheel.parent, record)
    found = choice.choose(resolve({}), wheel, "3.11")
    assert (found.spec.requirements, found.spec.wheel) == ("cuda-12.6.1", wheel)
    assert found.digest == digest.digest_file(wheel)
    assert not [root for root in found.roots if root.startswith("tensorflow")]
    assert [root for root in found.roots if root.startswith("nvidia-cudnn-cu12==9.5.0")]


def test_a_wheel_without_a_record_gets_a_set_that_is_new_enough_for_it(tmp_path: Path) -> None:
    found = choice.choose(resolve({}), make_own_wheel(tmp_path / "dist"), "3.11")
    assert (found.spec.tensorflow, found.spec.cuda) == ("2.21.0", "12.8.1")


def test_a_wheel_for_another_python_is_refused_with_those_that_fit(tmp_path: Path) -> None:
    wheel = make_own_wheel(tmp_path / "dist", tag="cp312-cp312")
    assert choice.list_pythons(resolve({}), wheel) == ("3.12",)
    with pytest.raises(UnsupportedError) as caught:
        choice.choose(resolve({}), wheel, "3.11")
    assert "3.12" in caught.value.why
    assert "--python 3.12" in caught.value.remedy
