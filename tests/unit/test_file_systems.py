"""A file system without locks is named, because two jobs could write into one folder there."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from toolkit.base.errors import PreflightError
from toolkit.engine import local
from train.config.resolution import resolve
from train.run import job


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(PreflightError, match="cannot lock") as caught, local.using(tmp_path / "environment"):
        pass
    assert caught.value.why == "No locks available"
    with pytest.raises(PreflightError, match="cannot lock") as refused:
        job.lock_run_folder(resolve("digits", out=str(tmp_path))).__enter__()
    assert "No locks available" in refused.value.why
    assert "another process" not in str(refused.value)
