import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.threads import THREADS
from tests.unit.train import runs
from train.step import runtime

runtime.prepare(THREADS)


@pytest.fixture
def no_drawing() -> Iterator[None]:
    with runs.without_drawing():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train one run and return its parent folder; a test that changes it must copy it."""
    out = tmp_path_factory.mktemp("unbroken")
    runs.make(out, "--checkpoint-every", "4")
    return out


@pytest.fixture(scope="session")
def unbroken(finished: Path) -> str:
    return runs.read_digest(finished)


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train one run long enough to tell most digits, and return its folder; a test that changes it must copy it."""
    return runs.make(tmp_path_factory.mktemp("learnt"), "--epochs", "6")
