from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.records import maker
from toolkit.base.errors import IntegrityError
from toolkit.records import Environment, compare

ZERO = "sha256:" + "0" * 64


def packages(folder: Path) -> Path:
    return next(folder.glob("venv/lib/python3.*/site-packages"))


def replace_digest(folder: Path) -> None:
    maker.change_json(folder / "manifest.json", lambda value: value.update(digest=ZERO))


def replace_wheel(folder: Path) -> None:
    maker.change_json(folder / "manifest.json", lambda value: value["parent"].update(digest=ZERO))


def replace_lock(folder: Path) -> None:
    maker.change_json(folder / "manifest.json", lambda value: value["parent"]["parent"].update(digest=ZERO))


def upgrade(folder: Path) -> None:
    path = packages(folder) / "tensorflow_cpu-2.19.0.dist-info" / "METADATA"
    path.write_text(path.read_text().replace("2.19.0", "2.19.1"))


def add(folder: Path) -> None:
    info = packages(folder) / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "RECORD").write_text("")


def change(folder: Path) -> None:
    (packages(folder) / "tensorflow.py").write_text("import os\n")


def remove(folder: Path) -> None:
    (packages(folder) / "tensorflow.py").unlink()


def forget(folder: Path) -> None:
    (packages(folder) / "tensorflow_cpu-2.19.0.dist-info" / "RECORD").unlink()


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda folder: None, {}),
        (replace_digest, {"manifest": "fail"}),
        (replace_wheel, {"wheel": "fail"}),
        (replace_lock, {"lock": "absent"}),
        (upgrade, {"packages": "fail", "content": "fail"}),
        (add, {"packages": "fail", "content": "fail"}),
        (change, {"files": "fail", "content": "fail"}),
        (remove, {"files": "fail", "content": "fail"}),
        (forget, {"files": "fail", "content": "fail"}),
    ],
)
def test_what_was_changed_is_found_by_its_name(
    tmp_path: Path, spoil: Callable[[Path], None], found: dict[str, str]
) -> None:
    folder = maker.make_environment(tmp_path)
    spoil(folder)
    findings = compare(Environment(folder=folder, state=folder.parent)).list_findings()
    assert [item.id for item in findings] == ["manifest", "wheel", "packages", "files", "content", "lock"]
    assert {item.id: item.state for item in findings if item.state != "ok"} == found


@pytest.mark.parametrize("name", ["manifest.json", "packages.json"])
def test_without_its_records_nothing_can_be_said(tmp_path: Path, name: str) -> None:
    folder = maker.make_environment(tmp_path)
    (folder / name).unlink()
    with pytest.raises(IntegrityError, match=r"no manifest of an environment|no record of packages"):
        compare(Environment(folder=folder, state=folder.parent)).list_findings()


def write(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (packages(folder) / "tensorflow_cpu-2.19.0.dist-info" / name).write_bytes(content) and None


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda folder: (packages(folder) / "tensorflow_cpu-2.19.0.dist-info" / "METADATA").unlink(), "packages"),
        (write("RECORD", b"\xff\xfe,sha256=x,1"), "files"),
    ],
)
def test_damaged_metadata_is_a_finding(tmp_path: Path, spoil: Callable[[Path], None], found: str) -> None:
    folder = maker.make_environment(tmp_path)
    spoil(folder)
    assert {item.id: item.state for item in compare(Environment(folder=folder, state=folder.parent)).list_findings()}[
        found
    ] == "fail"
