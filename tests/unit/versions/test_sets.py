import re
from pathlib import Path

import pytest

from toolkit import project, versions
from toolkit.errors import UnsupportedError
from toolkit.versions import numbers, sets

TABLE = versions.load_table()


def read_pins(name: str) -> dict[str, str]:
    text = project.locate(f"docker/requirements/{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


def test_the_repository_has_a_cpu_set_for_each_recent_tensorflow_and_python() -> None:
    for tensorflow in ("2.19.0", "2.20.0", "2.21.0"):
        for python in ("3.11", "3.12", "3.13"):
            found = versions.find_locked(TABLE, tensorflow, python, "", "")
            assert (found is not None) == (python in TABLE.tensorflow(tensorflow).python)


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_named_by_its_versions_and_the_first_ones_keep_their_names(item: versions.Locked) -> None:
    named = f"cuda-{item.tensorflow}-{item.cuda}-{item.cudnn}" if item.cuda else f"cpu-{item.tensorflow}"
    assert item.requirements == named or (item.tensorflow, item.python) == ("2.19.0", ("3.11",))


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_a_set_is_resolved_from_the_versions_of_the_table(item: versions.Locked) -> None:
    path = project.locate(f"docker/requirements/{item.requirements}.in")
    wanted = dict(line.split("==") for line in sets.list_packages(TABLE, item) if "==" in line)
    assert wanted.items() <= read_pins(item.requirements).items()
    if item.python != ("3.11",):
        assert path.read_text() == sets.compose_input(TABLE, item)


def test_sets_hold_nothing_that_depends_on_the_platform() -> None:
    for item in TABLE.published:
        text = project.locate(f"docker/requirements/{item.requirements}.txt").read_text()
        assert "platform" not in text
        assert "://" not in text


def test_a_set_that_was_locked_on_demand_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "ROOT", tmp_path)
    asked = ("2.18.1", "3.12", "12.6.1", "9.3.0")
    assert versions.find_locked(TABLE, *asked) is None
    (tmp_path / "docker/requirements").mkdir(parents=True)
    (tmp_path / "docker/requirements/cuda-2.18.1-12.6.1-9.3.0.txt").write_text("")
    found = versions.find_locked(TABLE, *asked)
    assert found == versions.plan_set(TABLE, *asked)
    assert found is not None
    assert found.python == ("3.11", "3.12")
    assert versions.find_locked(TABLE, "2.18.1", "3.13", "12.6.1", "9.3.0") is None
    assert versions.find_locked(TABLE, "2.99.0", "3.13", "", "") is None


@pytest.mark.parametrize(
    ("asked", "reason", "hint"),
    [
        (("2.19.0", "3.13", "", ""), "no run-time set of TensorFlow 2.19.0", "--tensorflow 2.19.0 --python 3.12"),
        (("2.20.0", "3.10", "", ""), "for Python 3.10", "--tensorflow 2.20.0 --python 3.11"),
        (("2.21.0", "3.13", "12.8.1", "9.5.0"), "#6417", "--python 3.13 --cuda 12.8.1 --cudnn 9.10.2"),
        (("2.21.0", "3.11", "12.9.0", "9.8.0"), "12.9.0 are not locked", "--cuda 12.9.1 --cudnn 9.8.0"),
        (("2.23.0", "3.11", "", ""), "not in the version table", "--tensorflow 2.21.0"),
    ],
)
def test_a_set_that_cannot_be_is_refused_with_the_nearest(
    asked: tuple[str, str, str, str], reason: str, hint: str
) -> None:
    with pytest.raises(UnsupportedError, match=re.escape(reason)) as caught:
        versions.plan_set(TABLE, *asked)
    assert hint in caught.value.remedy
    assert "--compute-capability" not in caught.value.remedy


def test_every_hint_of_a_set_can_be_locked() -> None:
    for row in TABLE.rows():
        for cuda in TABLE.cuda_rows:
            try:
                versions.plan_set(TABLE, row.version, "3.12", cuda, "9.3.0")
            except UnsupportedError as error:
                flags = dict(re.findall(r"--(\S+) (\S+)", error.remedy))
                found = versions.plan_set(TABLE, **flags)
                assert TABLE.cuda_rows[found.cuda].components
                assert TABLE.cudnn_rows[found.cudnn].wheel
                assert numbers.parse(TABLE.tensorflow(found.tensorflow).nccl)
