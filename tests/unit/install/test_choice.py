import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.makers.newest import CPU
from tests.makers.publication import seal
from tests.unit.wheel.maker import MEMBER, make_build_info, make_wheel
from toolkit import jobs
from toolkit.base import digest, manifest
from toolkit.base.console import Console
from toolkit.base.errors import GpuError, UnsupportedError, UsageError
from toolkit.doctor import reading
from toolkit.doctor.machine import Device, Machine
from toolkit.install import package_set
from toolkit.jobs.choice import Chosen, Manner, Wishes, choose
from toolkit.versions.settings import resolve


def make_own_wheel(folder: Path, *, cuda: str = "12.5.1", version: str = "2.21.0", tag: str = "cp311-cp311") -> Path:
    folder.mkdir()
    content = {MEMBER: make_build_info("compute_75", cuda=cuda)}
    return make_wheel(folder, version=version, tag=f"{tag}-linux_x86_64", files=content)


def test_the_set_of_a_wheel_is_that_of_its_record(tmp_path: Path) -> None:
    wheel = make_own_wheel(tmp_path / "dist", cuda="12.6.1", version="2.19.0")
    spec = {"tensorflow": "2.19.0", "python": "3.11", "cuda": "12.6.1", "cudnn": "9.5.0"}
    record = manifest.Manifest(
        kind="wheel", digest=digest.digest_file(wheel), facts={"lock": {"schema": 1, "spec": spec, "pins": {}}}
    )
    manifest.write(wheel.parent, record)
    found = package_set.find(resolve({}), wheel, "3.11")
    assert (found.spec.requirements, found.spec.wheel) == ("cuda-12.6.1", wheel)
    assert found.digest == digest.digest_file(wheel)
    assert not [root for root in found.roots if root.startswith("tensorflow")]
    assert [root for root in found.roots if root.startswith("nvidia-cudnn-cu12==9.5.0")]


def test_no_published_wheel_is_put_beside_the_libraries_of_another_cuda() -> None:
    asked = resolve({"tensorflow": "2.21.0", "cuda": "13.0.0", "cudnn": "9.12.0"})
    with pytest.raises(UnsupportedError, match=r"the published wheels load no library of CUDA 13\.0\.0") as caught:
        package_set.find(asked, None, "3.11")
    assert "--wheel" in caught.value.remedy


def test_a_wheel_for_another_python_is_refused_with_those_that_fit(tmp_path: Path) -> None:
    wheel = make_own_wheel(tmp_path / "dist", tag="cp312-cp312")
    assert package_set.list_pythons(resolve({}), wheel) == ("3.12",)
    with pytest.raises(UnsupportedError) as caught:
        package_set.find(resolve({}), wheel, "3.11")
    assert caught.value.why == "it is for Python 3.12, and 3.11 is needed"
    assert "--python 3.12" in caught.value.remedy


def play(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    """Let this machine have other cards, or none."""
    monkeypatch.setattr(jobs.choice, "hides_gpus", lambda: False)
    monkeypatch.setattr(reading, "read_machine", lambda *_, **__: Machine(engine="host", devices=devices))


def take(python: str, dist: Path, **flags: str) -> Chosen:
    wishes = Wishes(settings=resolve(flags), installs=True, python=python)
    return choose(wishes, Manner(console=Console(verbosity=-1)), dist)


BLACKWELL = Device(name="NVIDIA GeForce RTX 5090", capability="12.0", driver="580.65.06")


def test_a_card_that_needs_a_graft_takes_the_newest_one_with_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(monkeypatch, BLACKWELL)
    chosen = take("3.11", tmp_path)
    assert chosen.missing
    assert chosen.wheel is None
    for folder, code in (("other", "sm_90"), ("grafted", "sm_120")):
        seal(make_own_wheel(tmp_path / folder), "sm_75", code)
    found = take("3.11", tmp_path).wheel
    assert found
    assert found.parent.name == "grafted"
    other = take("3.12", tmp_path)
    assert other.wheel is None
    assert other.missing
    assert other.missing.lock.spec["python"] == "3.12"


def test_a_card_that_needs_a_build_takes_the_finished_one_for_every_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    play(monkeypatch, Device(name="NVIDIA GeForce GTX 970", capability="5.2", driver="560.35.03"))
    wishes, runner = Wishes(settings=resolve({"engine": "host"})), Manner(console=Console(verbosity=-1))
    assert not choose(wishes, runner, tmp_path).settings.cuda
    with pytest.raises(UsageError, match="no published wheel"):
        take("3.11", tmp_path)
    with pytest.raises(GpuError, match="none can be used"):
        choose(replace(wishes, gpu=True), runner, tmp_path)
    wheel = make_own_wheel(tmp_path / "built", cuda="12.6.1", version="2.19.0")
    seal(wheel, "sm_52")
    for chosen in (
        take("3.11", tmp_path),
        choose(wishes, runner, tmp_path),
        choose(replace(wishes, gpu=True), runner, tmp_path),
    ):
        assert (chosen.wheel, chosen.settings.cuda) == (wheel, "12.6.1")
        assert chosen.decision
        assert not [line for line in chosen.decision.lines() if "until the wheel is built" in line]


@pytest.mark.parametrize(
    ("device", "waits"),
    [
        (Device(name="Tesla T4", capability="7.5", driver="470.57.02"), True),
        (Device(name="NVIDIA GeForce GTX 970", capability="5.2", driver="560.35.03"), False),
    ],
    ids=["an old driver", "a build"],
)
def test_an_installation_computes_on_the_processor_until_the_driver_is_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, device: Device, waits: bool
) -> None:
    play(monkeypatch, device)
    wishes = Wishes(settings=resolve({}), installs=True, python="3.11")
    with contextlib.nullcontext() if waits else pytest.raises(UsageError, match="no published wheel"):
        assert choose(wishes, Manner(console=Console()), tmp_path).settings.cuda
    assert ("until then it computes on the processor" in capsys.readouterr().err) == waits


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.13"])
def test_each_python_for_which_tensorflow_has_wheels_is_served(python: str) -> None:
    settings = resolve({"card": "none"})
    assert python in package_set.list_pythons(settings, None)
    found = package_set.find(settings, None, python)
    assert found.spec.tensorflow == CPU.tensorflow
    with pytest.raises(UnsupportedError, match=r"Python 3\.8"):
        package_set.find(settings, None, "3.8")


def test_libraries_of_no_locked_set_are_refused_with_the_command_that_makes_one() -> None:
    settings = resolve({"cuda": "12.6.1", "cudnn": "9.4.0"})
    assert "3.11" in package_set.list_pythons(settings, None)
    with pytest.raises(UnsupportedError, match="no locked set") as caught:
        package_set.find(settings, None, "3.11")
    assert "toolkit lock --tensorflow 2.19.0 --python 3.11 --cuda 12.6.1 --cudnn 9.4.0" in caught.value.remedy
