import re

import pytest
from packaging.requirements import Requirement

from toolkit.base import project
from toolkit.base.errors import UnsupportedError
from toolkit.versions import rules, sets
from toolkit.versions.rules import plan_set
from toolkit.versions.set import VERSIONS, Set
from toolkit.versions.table import Locked, load_table

TABLE = load_table()
FIRST = ("cpu", "cuda-12.6.1")
"""Sets of TensorFlow 2.19.0, older than the others: names without a version, comments written by hand."""


def read_pins(name: str) -> dict[str, str]:
    text = project.locate(f"docker/requirements/{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_resolved_from_the_versions_of_the_table(item: Locked) -> None:
    path = project.locate(f"docker/requirements/{item.requirements}.in")
    wanted = dict(line.partition(" ; ")[0].split("==") for line in sets.list_packages(TABLE, item) if "==" in line)
    assert wanted.items() <= read_pins(item.requirements).items()
    if item.requirements not in FIRST:
        assert path.read_text() == sets.compose_input(TABLE, item)


def read_requirements(name: str, machine: str) -> dict[str, Requirement]:
    """Return what a set installs on a machine, by name."""
    text = project.locate(f"docker/requirements/{name}.txt").read_text()
    found = [Requirement(line.rstrip("\\ ")) for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    place = {"platform_machine": machine, "python_full_version": "3.11.0"}
    return {each.name: each for each in found if each.marker is None or each.marker.evaluate(place)}


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_one_for_both_platforms_but_for_the_name_of_the_cpu_wheel(item: Locked) -> None:
    text = project.locate(f"docker/requirements/{item.requirements}.txt").read_text()
    assert "sys_platform" not in text
    assert "://" not in text
    on = {name: read_requirements(item.requirements, place.machine) for name, place in TABLE.platforms.items()}
    here, there = on["linux/amd64"].keys(), on["linux/arm64"].keys()
    assert here ^ there == (set() if item.cuda else {"tensorflow", "tensorflow-cpu"})
    assert "tensorflow" in there
    assert all(str(each.specifier).startswith("==") for found in on.values() for each in found.values())


@pytest.mark.parametrize(
    ("asked", "reason", "hint"),
    [
        (("2.19.0", "3.13", "", ""), "no run-time set of TensorFlow 2.19.0", "--tensorflow 2.19.0 --python 3.12"),
        (("2.20.0", "3.10", "", ""), "for Python 3.10", "--tensorflow 2.20.0 --python 3.11"),
        (("2.21.0", "3.13", "12.8.1", "9.5.0"), "#6417", "--python 3.13 --cuda 12.8.1 --cudnn 9.10.2"),
        (("2.21.0", "3.11", "12.6.0", "9.8.0"), "12.6.0 are not locked", "--cuda 12.6.1 --cudnn 9.8.0"),
        (("2.21.0", "3.11", "13.0.0", "9.10.2"), "cuDNN 9.12 is the first", "--cuda 13.0.0 --cudnn 9.12.0"),
        (("99.0.0", "3.11", "", ""), "not in the version table", f"--tensorflow {TABLE.rows()[0].version}"),
    ],
)
def test_a_set_that_cannot_be_is_refused_with_the_nearest(
    asked: tuple[str, str, str, str], reason: str, hint: str
) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(reason)) as caught:
        plan_set(TABLE, Set(**dict(zip(VERSIONS, asked, strict=False))))
    assert hint in caught.value.remedy
    assert "--compute-capability" not in caught.value.remedy


def test_a_set_of_cuda_13_has_the_names_of_its_packages() -> None:
    planned = plan_set(TABLE, Set(tensorflow="2.21.0", python="3.11", cuda="13.0.0", cudnn="9.12.0"))
    wanted = sets.list_packages(TABLE, planned)
    assert {"nvidia-cublas==13.0.0.19", "nvidia-nvvm==13.0.48", "nvidia-cudnn-cu13==9.12.0.46"} < {*wanted}
    assert not [package for package in wanted if "-cu12" in package]


def test_no_set_is_made_for_a_cuda_whose_libraries_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "find_wheels", lambda _: {})
    with pytest.raises(UnsupportedError, match=r"no run-time set for CUDA 13\.0\.0") as caught:
        plan_set(TABLE, Set(tensorflow="2.21.0", python="3.11", cuda="13.0.0", cudnn="9.12.0"))
    assert "toolkit build-wheel" in caught.value.remedy
