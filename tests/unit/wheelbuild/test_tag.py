import zipfile
from pathlib import Path

import pytest
from wheelbuild import tag

from tests.unit.wheel.maker import make_wheel
from toolkit.wheel import archive

PLATFORM = tag.name_platform("2.28", "x86_64")


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    (tmp_path / "built").mkdir()
    return make_wheel(
        tmp_path / "built", files={"tensorflow/x.so": b"\x7fELF" + bytes(99_999), "tensorflow/y.py": b"1"}
    )


def test_a_copy_has_the_tag_in_its_name_and_files_and_is_whole(wheel: Path, tmp_path: Path) -> None:
    made = tag.change(wheel, tmp_path, PLATFORM)
    assert made.name == wheel.name.replace("linux_x86_64", "manylinux_2_28_x86_64")
    with archive.open_wheel(made) as found:
        assert {item.platform for item in found.identity.tags} == {PLATFORM}
        assert len(list(found.read_members(b"\x7fELF"))) == 1
    with zipfile.ZipFile(made) as new, zipfile.ZipFile(wheel) as old:
        assert [item.filename for item in new.infolist()] == [item.filename for item in old.infolist()]
        kept = [item for item in old.infolist() if ".dist-info/" not in item.filename]
        assert all(new.read(item.filename) == old.read(item.filename) for item in kept)
        described = [(item.filename, item.date_time, item.external_attr) for item in old.infolist()]
        assert [(item.filename, item.date_time, item.external_attr) for item in new.infolist()] == described


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tensorflow-1-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("x", b"")
    with pytest.raises(ValueError, match=r"no tensorflow-1\.dist-info"):
        tag.change(path, tmp_path / "..", PLATFORM)
