import errno
import os
from pathlib import Path

import pytest

from train.errors import PreflightError
from train.system.files import explain_path, read_regular, replacing, replacing_folder, sweep


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


def test_what_is_read_before_it_is_trusted_is_a_regular_file_of_a_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(OSError, match="5 bytes, and may have 4"):
        read_regular(path, 4)
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="may have"):
        read_regular(path)
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(OSError, match="no regular file"):
            read_regular(Path(name))
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 100_000), 2),
        (PermissionError(errno.EACCES, "Permission denied", "a"), 4),
        (ValueError("embedded null byte"), 2),
        (OSError(errno.EIO, "Input/output error", "a"), None),
        (ValueError("something else"), None),
    ],
)
def test_a_path_that_cannot_be_used_is_explained_shortly(error: OSError | ValueError, code: int | None) -> None:
    found = explain_path(error)
    assert (found.exit_code if found else None) == code
    assert len(str(found)) < 500
