"""TensorFlow is set up once for all tests, as a run sets it up."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from typing import Any

import pytest
from matplotlib.figure import Figure

from train import runtime

runtime.prepare(threads=2)


@pytest.fixture
def no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write bytes of about the same size instead of pictures, which take a third of the time of a small run."""

    def write(_: Figure, file: Any, **options: Any) -> None:
        file.write(b"\x89PNG\r\n" + bytes(40_000))

    monkeypatch.setattr(Figure, "savefig", write)
