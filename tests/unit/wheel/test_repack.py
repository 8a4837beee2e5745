import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.unit.wheel.maker import make_wheel
from toolkit.wheel import archive, repack

VERSIONS = ("2.21.0", "2.21.0+sm120")
NAME = "tensorflow-2.21.0+sm120-cp311-cp311-linux_x86_64.whl"
FILES = {
    "tensorflow/a.so": b"old",
    "tensorflow/ä b.py": "x = 1\n",
    "tensorflow/empty": b"",
    "tensorflow/big": bytes(99),
}


def make(folder: Path) -> Path:
    return make_wheel(folder, version="2.21.0", files=FILES)


def write(folder: Path, content: bytes, source: Path | None = None) -> Path:
    (folder / "new").write_bytes(content)
    repack.repack(source or make(folder), folder / NAME, {"tensorflow/a.so": folder / "new"}, VERSIONS)
    return folder / NAME


@pytest.mark.parametrize("size", [0, 1, 64, 65, 1000])
def test_only_what_is_replaced_differs(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repack, "_PIECE", 64)
    content = bytes(number * number % 251 for number in range(size))
    made = write(tmp_path, content)
    with zipfile.ZipFile(made) as new:
        assert new.testzip() is None
        assert new.read("tensorflow/a.so") == content
        assert new.read("tensorflow/ä b.py") == b"x = 1\n"
        assert b"\nVersion: 2.21.0+sm120\n" in new.read("tensorflow-2.21.0+sm120.dist-info/METADATA")
    with archive.open_wheel(made) as opened:  # with every file's hash
        assert opened.identity.version == "2.21.0+sm120"
        assert not list(opened.read_members(b"\x7fELF"))


def test_pip_installs_it(tmp_path: Path) -> None:
    made, target = write(tmp_path, b"new"), tmp_path / "there"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run(
        [*pip, "--disable-pip-version-check", "--ignore-requires-python", "--target", str(target), str(made)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "is not a supported wheel" in done.stderr:
        pytest.skip("the wheel is for Python 3.11")
    assert done.returncode == 0, done.stderr
    assert (target / "tensorflow" / "a.so").read_bytes() == b"new"
    assert (target / "tensorflow-2.21.0+sm120.dist-info").is_dir()
