import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Stop the garbage collector, in whose callbacks and finalizers a KeyboardInterrupt is only printed, and lost."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    folder = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def write(name: str, script: str) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
        return folder / name

    return write
