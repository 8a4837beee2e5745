from pathlib import Path

import pytest

from train.errors import PreflightError
from train.system.files import replacing, replacing_folder, sweep, writing


def test_a_file_whose_writing_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(TypeError), replacing(path) as file:
        file.write("no bytes")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text(encoding="utf-8") == "old"


def test_only_half_written_files_are_swept(tmp_path: Path) -> None:
    (tmp_path / ".metrics.csv.abcd1234").touch()
    (tmp_path / ".lock").touch()
    (tmp_path / ".export.abcd1234").mkdir()  # may belong to an export that still runs
    (tmp_path / ".export.abcd1234" / "part").touch()
    sweep(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".export.abcd1234", ".lock"]
    with replacing_folder(tmp_path / "export", ("one",)) as new:  # the next export removes it
        (new / "one").touch()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".lock", "export"]


def test_a_folder_takes_the_place_of_its_like_only(tmp_path: Path) -> None:
    path = tmp_path / "export"
    for text in ("1", "2"):
        with replacing_folder(path, ("one",)) as new:
            (new / "one").write_text(text, encoding="utf-8")
    assert (path / "one").read_text(encoding="utf-8") == "2"
    (path / "two").touch()
    with pytest.raises(PreflightError, match="holds something else: two"), replacing_folder(path, ("one",)):
        raise AssertionError
    with pytest.raises(PreflightError, match="cannot write"), replacing_folder(path / "one" / "below", ("one",)):
        raise AssertionError
    assert sorted(entry.name for entry in path.iterdir()) == ["one", "two"]


def test_the_systems_reason_is_given(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught, writing(tmp_path):
        Path("/dev/full").write_text("a", encoding="utf-8")
    assert caught.value.why == "No space left on device"
