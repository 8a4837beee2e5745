from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker
from toolkit.base.errors import IntegrityError
from toolkit.records import Environment, compare

ZERO = "sha256:" + "0" * 64


INFO = "tensorflow_cpu-2.19.0.dist-info"
Spoil = Callable[[Path], object]


def edit(change: Callable[[dict[str, Any]], object]) -> Spoil:
    return lambda folder: maker.change_json(folder / "manifest.json", change)


def inside(change: Spoil) -> Spoil:
    """Change the folder of the packages."""
    return lambda folder: change(next(folder.glob("venv/lib/python3.*/site-packages")))


def upgrade(packages: Path) -> None:
    path = packages / INFO / "METADATA"
    path.write_text(path.read_text().replace("2.19.0", "2.19.1"))


def add(packages: Path) -> None:
    info = packages / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "RECORD").write_text("")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda folder: None, set()),
        (edit(lambda value: value.update(digest=ZERO)), {"manifest"}),
        (edit(lambda value: value["parent"].update(digest=ZERO)), {"wheel"}),
        (edit(lambda value: value["parent"]["parent"].update(digest=ZERO)), {"lock"}),
        (inside(upgrade), {"packages", "content"}),
        (inside(add), {"packages", "content"}),
        (inside(lambda packages: (packages / "tensorflow.py").write_text("import os\n")), {"files", "content"}),
        (inside(lambda packages: (packages / "tensorflow.py").unlink()), {"files", "content"}),
        (inside(lambda packages: (packages / INFO / "RECORD").unlink()), {"files", "content"}),
        (inside(lambda packages: (packages / INFO / "METADATA").unlink()), {"packages", "content"}),
        (
            inside(lambda packages: (packages / INFO / "RECORD").write_bytes(b"\xff\xfe,sha256=x,1")),
            {"files", "content"},
        ),
    ],
)
def test_what_was_changed_is_found_by_its_name(tmp_path: Path, spoil: Spoil, found: set[str]) -> None:
    folder = maker.make_environment(tmp_path)
    spoil(folder)
    findings = compare(Environment(folder=folder, state=folder.parent)).list_findings()
    assert [item.id for item in findings] == ["manifest", "wheel", "packages", "files", "content", "lock"]
    wrong = {item.id: item.state for item in findings if item.state != "ok"}
    assert wrong == {name: "absent" if name == "lock" else "fail" for name in found}


@pytest.mark.parametrize("name", ["manifest.json", "packages.json"])
def test_without_its_records_nothing_can_be_said(tmp_path: Path, name: str) -> None:
    folder = maker.make_environment(tmp_path)
    (folder / name).unlink()
    with pytest.raises(IntegrityError, match=r"no manifest of an environment|no record of packages"):
        compare(Environment(folder=folder, state=folder.parent)).list_findings()
