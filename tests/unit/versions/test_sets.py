import re
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from toolkit import versions
from toolkit.base import project
from toolkit.base.errors import UnsupportedError
from toolkit.versions import Set, numbers, sets
from toolkit.versions.set import VERSIONS

TABLE = versions.load_table()
FIRST = ("cpu", "cuda-12.6.1")
"""Sets of TensorFlow 2.19.0, older than the others: names without a version, comments written by hand."""


def read_pins(name: str) -> dict[str, str]:
    text = project.locate(f"docker/requirements/{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_resolved_from_the_versions_of_the_table(item: versions.Locked) -> None:
    path = project.locate(f"docker/requirements/{item.requirements}.in")
    wanted = dict(line.partition(" ; ")[0].split("==") for line in sets.list_packages(TABLE, item) if "==" in line)
    assert wanted.items() <= read_pins(item.requirements).items()
    if item.requirements not in FIRST:
        assert path.read_text() == sets.compose_input(TABLE, item)


def read_requirements(name: str, machine: str, python: str = "3.11") -> dict[str, Requirement]:
    """Return what a set installs on a machine, by name."""
    text = project.locate(f"docker/requirements/{name}.txt").read_text()
    found = [Requirement(line.rstrip("\\ ")) for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    place = {"platform_machine": machine, "python_full_version": f"{python}.0"}
    return {each.name: each for each in found if each.marker is None or each.marker.evaluate(place)}


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_one_for_both_platforms_but_for_the_name_of_the_cpu_wheel(item: versions.Locked) -> None:
    text = project.locate(f"docker/requirements/{item.requirements}.txt").read_text()
    assert "sys_platform" not in text
    assert "://" not in text
    on = {name: read_requirements(item.requirements, place.machine) for name, place in TABLE.platforms.items()}
    here, there = on["linux/amd64"].keys(), on["linux/arm64"].keys()
    assert here ^ there == (set() if item.cuda else {"tensorflow", "tensorflow-cpu"})
    assert "tensorflow" in there
    assert all(str(each.specifier).startswith("==") for found in on.values() for each in found.values())


def test_a_set_that_was_locked_on_demand_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "ROOT", tmp_path)
    asked = Set(tensorflow="2.18.1", python="3.12", cuda="12.6.1", cudnn="9.3.0")
    assert versions.find_locked(TABLE, asked) is None
    (tmp_path / "docker/requirements").mkdir(parents=True)
    (tmp_path / "docker/requirements/cuda-2.18.1-12.6.1-9.3.0.txt").write_text("")
    found = versions.find_locked(TABLE, asked)
    assert found == versions.plan_set(TABLE, asked)
    assert found is not None
    assert found.python == ("3.11", "3.12")
    assert versions.find_locked(TABLE, replace(asked, python="3.13")) is None
    assert versions.find_locked(TABLE, Set(tensorflow="2.99.0", python="3.13")) is None


@pytest.mark.parametrize(
    ("asked", "reason", "hint"),
    [
        (("2.19.0", "3.13", "", ""), "no run-time set of TensorFlow 2.19.0", "--tensorflow 2.19.0 --python 3.12"),
        (("2.20.0", "3.10", "", ""), "for Python 3.10", "--tensorflow 2.20.0 --python 3.11"),
        (("2.21.0", "3.13", "12.8.1", "9.5.0"), "#6417", "--python 3.13 --cuda 12.8.1 --cudnn 9.10.2"),
        (("2.21.0", "3.11", "12.6.0", "9.8.0"), "12.6.0 are not locked", "--cuda 12.6.1 --cudnn 9.8.0"),
        (("2.21.0", "3.11", "13.0.0", "9.12.0"), "no run-time set for CUDA 13.0.0", "toolkit build-wheel"),
        (("2.23.0", "3.11", "", ""), "not in the version table", "--tensorflow 2.21.0"),
    ],
)
def test_a_set_that_cannot_be_is_refused_with_the_nearest(
    asked: tuple[str, str, str, str], reason: str, hint: str
) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(reason)) as caught:
        versions.plan_set(TABLE, Set(**dict(zip(VERSIONS, asked, strict=True))))
    assert hint in caught.value.remedy
    assert "--compute-capability" not in caught.value.remedy


def test_every_hint_of_a_set_can_be_locked() -> None:
    for row in TABLE.rows():
        for cuda in (each for each in TABLE.cuda_rows if each < "13"):
            try:
                versions.plan_set(TABLE, Set(tensorflow=row.version, python="3.12", cuda=cuda, cudnn="9.3.0"))
            except UnsupportedError as error:
                flags = dict(re.findall(r"--(\S+) (\S+)", error.remedy))
                found = versions.plan_set(TABLE, Set.of(flags))
                assert TABLE.cuda_rows[found.cuda].components
                assert TABLE.cudnn_rows[found.cudnn].wheel
                assert numbers.parse(TABLE.tensorflow(found.tensorflow).nccl)
