"""TensorFlow is set up once for all tests, as a run sets it up; and one finished run is made for all."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.train import runs
from train import runtime

runtime.prepare(threads=2)


@pytest.fixture
def no_drawing() -> Iterator[None]:
    with runs.without_drawing():
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent folder of a run from start to end; a test that changes it takes a copy."""
    out = tmp_path_factory.mktemp("unbroken")
    runs.make(out, "--checkpoint-every", "4")
    return out


@pytest.fixture(scope="session")
def unbroken(finished: Path) -> str:
    """The digest of that run's weights."""
    return runs.read_digest(finished)
