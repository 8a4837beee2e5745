"""Wheels that installers could read in different ways. ``index`` and ``index --verify`` refuse the same ones."""

import errno
import io
import os
import resource
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.unit.wheel.maker import MEMBER, make_build_info, make_elf, make_wheel
from toolkit.base import digest
from toolkit.base.errors import IntegrityError, PreflightError
from toolkit.wheel import archive, package_index
from toolkit.wheel.package_index import RECORD
from tools.layers import ROOT

INFO = "tensorflow-2.19.0.dist-info"
BODY = make_build_info("compute_75")
FILES: Mapping[str, bytes | str] = {MEMBER: BODY, "tensorflow/__init__.py": ""}
Members = list[tuple[zipfile.ZipInfo, bytes]]


def write(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item, content in members:
            archive.writestr(item, content)
    return path


def read(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return [(item, archive.read(item)) for item in archive.infolist()]


def with_files(**files: bytes | str) -> Callable[[Path], Path]:
    """Make a wheel with more files, each of which its RECORD lists."""
    return lambda folder: make_wheel(folder, files={**FILES, **files})


def unlisted(name: str) -> Callable[[Path], Path]:
    return lambda folder: make_wheel(folder, files={**FILES, name: "x"}, record={name: None})


def changed(change: Callable[[Members], None]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        members = read(path := make_wheel(folder, files=FILES))
        change(members)
        return write(path, members)

    return make


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = make_wheel(folder, files=FILES)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def mark(mode: int, name: str = "tensorflow/__init__.py") -> Callable[[Path], Path]:
    def change(members: Members) -> None:
        for item, _ in members:
            if item.filename == name:
                item.external_attr = mode << 16

    return changed(change)


def hide_entry(content: bytes) -> bytes:
    """Put a whole member in front of the directory, which does not name it."""
    name, body = b"evil.pth", b"import evil"
    head = struct.pack("<4s5HLLLHH", b"PK\3\4", 20, 0, 0, 0, 33, zlib.crc32(body), len(body), len(body), len(name), 0)
    start = content.index(b"PK\1\2")
    end = bytearray(content[start:])
    at = end.rindex(b"PK\5\6") + 16
    struct.pack_into("<L", end, at, struct.unpack_from("<L", end, at)[0] + len(head + name + body))
    return content[:start] + head + name + body + bytes(end)


def add_comment(content: bytes) -> bytes:
    """Put a comment behind the directory."""
    comment = b"more"
    return content[:-2] + struct.pack("<H", len(comment)) + comment


def encrypt(content: bytes) -> bytes:
    at = content.index(b"PK\1\2") + 8
    return content[:at] + b"\1" + content[at + 1 :]


def rename(item: zipfile.ZipInfo) -> None:
    name = b"evil.py"
    item.extra = struct.pack("<HHBL", 0x7075, 5 + len(name), 1, zlib.crc32(item.filename.encode())) + name


def lie_of_size(content: bytes) -> bytes:
    """Let the directory say that the first member is a byte shorter than it is."""
    at = content.index(b"PK\1\2") + 24
    return content[:at] + struct.pack("<L", struct.unpack_from("<L", content, at)[0] - 1) + content[at + 4 :]


def say(*lines: str) -> Callable[[Path], Path]:
    return lambda folder: make_wheel(folder, files=FILES, requires=lines)


def repeat(name: str) -> Callable[[Path], Path]:
    def change(members: Members) -> None:
        (old,) = (item for item, _ in members if item.filename == name)
        members.append((zipfile.ZipInfo(old.filename, old.date_time), b"Name: tensorflow\nVersion: 2.19.0\n"))

    return changed(change)


def other_info(members: Members) -> None:
    members.append((zipfile.ZipInfo("other-1.dist-info/METADATA"), b"Name: other\nVersion: 1\n"))


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "parent": (with_files(**{"../../evil.py": "x"}), "land outside"),
    "root": (with_files(**{"/tmp/evil.py": "x"}), "land outside"),
    "data": (with_files(**{"tensorflow-2.19.0.data/data/../../../x": "x"}), "land outside"),
    "folder outside": (changed(lambda members: members.append((zipfile.ZipInfo("../../x/"), b""))), "land outside"),
    "two files": (repeat(MEMBER), "two files of one name"),
    "two METADATA": (repeat(f"{INFO}/METADATA"), "two files of one name"),
    "two packages": (changed(other_info), "metadata of several packages"),
    "pth": (unlisted("x.pth"), "is not in RECORD"),
    "false hash": (lambda folder: make_wheel(folder, files=FILES, record={MEMBER: "sha256=x"}), "not what RECORD says"),
    "weak hash": (lambda folder: make_wheel(folder, files=FILES, record={MEMBER: "md5=x"}), "no strong hash"),
    "file gone": (lambda folder: make_wheel(folder, files=FILES, record={"x.py": "sha256=x"}), "in RECORD but not"),
    "link": (mark(stat.S_IFLNK | 0o777), "a link, a device"),
    "device": (mark(stat.S_IFCHR | 0o666), "a link, a device"),
    "named pipe": (mark(stat.S_IFIFO | 0o666), "a link, a device"),
    "file as a folder": (mark(stat.S_IFDIR | 0o755), "a link, a device"),
    "backslashes": (with_files(**{"..\\..\\evil.py": "x"}), "in different ways"),
    "drive": (with_files(**{"C:\\evil.py": "x"}), "in different ways"),
    "case": (with_files(**{"tensorflow/A.py": "x", "tensorflow/a.py": "y"}), "differ by case or form"),
    "case of folders": (with_files(**{"TensorFlow/__init__.py": "x"}), "differ by case or form"),
    "form": (with_files(**{"tensorflow/\xe9.py": "x", "tensorflow/e\u0301.py": "y"}), "differ by case or form"),
    "sharp s": (with_files(**{"tensorflow/\xdf.py": "x", "tensorflow/ss.py": "y"}), "differ by case or form"),
    "RECORD elsewhere": (unlisted("tensorflow/RECORD"), "is not in RECORD"),
    "signature elsewhere": (unlisted("tensorflow/RECORD.jws"), "is not in RECORD"),
    "dots": (with_files(**{"tensorflow/./b.py": "x"}), "in different ways"),
    "two slashes": (with_files(**{"tensorflow//b.py": "x"}), "in different ways"),
    "line feed": (with_files(**{"tensorflow/b\n.py": "x"}), "in different ways"),
    "escape": (with_files(**{"tensorflow/\x1b[2J.py": "x"}), "in different ways"),
    "right to left": (with_files(**{"tensorflow/\u202eyp.b": "x"}), "in different ways"),
    "NUL": (lambda folder: _put_nul(with_files(**{"tensorflow/b.py!c.py": "x"})(folder)), "in different ways"),
    "other name": (changed(lambda members: rename(members[0][0])), "in different ways"),
    "file and folder": (with_files(**{"tensorflow/b": "x", "tensorflow/b/c.py": "y"}), "file and a folder of one name"),
    "encrypted": (edited(encrypt), "encrypted file"),
    "hidden entry": (edited(hide_entry), "of none of its files"),
    "text in front": (edited(lambda content: b"#!/bin/sh\n" + content), "of none of its files"),
    "comment": (edited(add_comment), "of none of its files"),
    "size": (edited(lie_of_size), "damaged or cut off"),
    "cut": (edited(lambda content: content[: len(content) // 2]), "damaged or cut off"),
    "Pythons": (say('Requires-Python: >=3"><script>alert(1)</script>'), "names no Pythons"),
    "bomb": (with_files(**{"tensorflow/zeros": bytes(200_000_000)}), "unpacks to more than 100 times"),
    "long METADATA": (say(f"Summary: {'a' * 17_000_000}"), "has 17,000,"),
}


def _put_nul(path: Path) -> Path:
    path.write_bytes(path.read_bytes().replace(b"b.py!c.py", b"b.py\0c.py"))
    return path


@pytest.fixture
def hostile(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    make, message = HOSTILE[request.param]
    return make(tmp_path), message


@pytest.mark.parametrize("hostile", HOSTILE, indirect=True)
def test_a_wheel_that_installers_read_in_different_ways_is_refused(hostile: tuple[Path, str], tmp_path: Path) -> None:
    wheel, message = hostile
    with pytest.raises(IntegrityError) as made:
        package_index.make(tmp_path / "site", [wheel])
    assert message in str(made.value.why) + made.value.what
    assert not (tmp_path / "site").exists()
    verified = verify_with(wheel, tmp_path)
    assert (verified.what, verified.why) == (made.value.what, made.value.why)


def verify_with(wheel: Path, folder: Path) -> IntegrityError:
    """Put a wheel into an index whose record fits it, as a stranger could, and verify that."""
    (folder / "good").mkdir()
    package_index.make(folder / "site", [make_wheel(folder / "good", files=FILES)])
    placed = folder / "site" / "tensorflow" / wheel.name
    placed.unlink()
    placed.write_bytes(wheel.read_bytes())
    record = folder / "site" / RECORD
    old = digest.read_file(folder / "good" / wheel.name)
    record.write_text(record.read_text().replace(old, digest.read_file(placed)))
    with pytest.raises(IntegrityError) as verified:
        package_index.verify(folder / "site")
    return verified.value


def test_a_wheel_of_usual_form_is_taken(tmp_path: Path) -> None:
    """Folders of their own, sizes behind the content, and a signed RECORD are usual."""
    members = read(path := make_wheel(tmp_path, files=FILES))
    with path.open("wb") as raw, zipfile.ZipFile(Unseekable(raw), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("tensorflow")
        for item, content in members:
            archive.writestr(item, content)
        archive.writestr(f"{INFO}/RECORD.jws", "{}")
    assert package_index.make(tmp_path / "site", [path])
    assert all(finding.state == "ok" for finding in package_index.verify(tmp_path / "site"))


class Unseekable:
    def __init__(self, file: Any) -> None:
        self.write, self.flush = file.write, file.flush


def test_a_full_disk_says_nothing_of_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path, files={**FILES, "tensorflow/lib.so": make_elf()})

    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    usual = archive.tempfile.TemporaryFile
    monkeypatch.setattr(archive.tempfile, "TemporaryFile", lambda **given: usual(**given) if given else Full())
    with pytest.raises(PreflightError, match="No space left"):
        package_index.make(tmp_path / "site", [wheel])


def test_metadata_of_600_mb_takes_little_memory(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files=FILES)
    members = [(item, content) for item, content in read(wheel) if "METADATA" not in item.filename]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for item, content in members:
            archive.writestr(item, content)
        with archive.open(f"{INFO}/METADATA", "w") as stream:
            stream.write(b"Name: tensorflow\nVersion: 2.19.0\n\n")
            for _ in range(600):
                stream.write(b"a" * 1_000_000)
    code = "import sys; from pathlib import Path; from toolkit.wheel import package_index\n"
    code += "package_index.make(Path(sys.argv[1]), [Path(sys.argv[2])])"
    limit = 300 << 20
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "site", wheel],
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        capture_output=True,
        text=True,
    )
    assert "unpacks to more than 100 times its size" in done.stderr, done.stderr
    assert not (tmp_path / "site").exists()
