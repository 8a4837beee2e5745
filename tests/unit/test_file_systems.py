"""Files are written on a file system without modes and links, as on a USB stick, and not without locks.

A library that is loaded first refuses the system calls that such a file system refuses.
"""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loaded import ROOT
from tests.native import needs_native
from toolkit.base.errors import PreflightError
from toolkit.engine import host
from train.config.resolution import resolve
from train.native import library
from train.run import job

REFUSALS = r"""
#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>
extern "C" {
static int refuse(int reason) { errno = reason; return -1; }
int chmod(const char*, mode_t) { return refuse(EPERM); }
int fchmod(int, mode_t) { return refuse(EPERM); }
int fchmodat(int, const char*, mode_t, int) { return refuse(EPERM); }
int link(const char*, const char*) { return refuse(EPERM); }
int linkat(int, const char*, int, const char*, int) { return refuse(EPERM); }
int symlink(const char*, const char*) { return refuse(EPERM); }
}
"""
WRITE = """
import sys
from pathlib import Path
from toolkit.base import files, keys
from train.system.files import replacing_folder, write_text
place = Path(sys.argv[1])
files.write_json(place / "one.json", {})
with files.stage(place, "a" * 12) as staging:
    files.set_mode(staging.path, 0o755)
write_text(place / "two", "2")
with replacing_folder(place / "three", ()) as folder:
    write_text(folder / "file", "3")
keys.make(place / "key")
"""


@needs_native
def test_files_are_written_without_modes_and_links(tmp_path: Path) -> None:
    source, refusing, place = tmp_path / "refuse.cc", tmp_path / "refuse.so", tmp_path / "place"
    source.write_text(REFUSALS)
    subprocess.run([library.find_compiler(), "-shared", "-fPIC", "-o", refusing, source], check=True)
    place.mkdir()
    variables = {**os.environ, "LD_PRELOAD": str(refusing), "PYTHONPATH": str(ROOT)}
    ask = "import os, sys; os.chmod(sys.argv[1], 0o700)"
    assert subprocess.run(
        [sys.executable, "-c", ask, place], env=variables, capture_output=True, check=False
    ).returncode
    subprocess.run([sys.executable, "-c", WRITE, place], env=variables, check=True)
    assert sorted(path.name for path in place.iterdir()) == ["key", "key.pub", "one.json", "three", "two"]


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PreflightError, match="cannot lock") as caught, host.using(tmp_path / "environment"):
        pass
    assert caught.value.why == "No locks available"
    with pytest.raises(PreflightError, match="cannot lock") as refused:
        job.lock_run_folder(resolve("digits", out=str(tmp_path))).__enter__()
    assert "No locks available" in refused.value.why
    assert "another process" not in str(refused.value)
