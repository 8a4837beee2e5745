import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

from collections.abc import Iterator

import pytest

from rehearsal.request import SYNTHETIC
from tests.threads import THREADS
from train.config.presets import read_table
from train.step import runtime

runtime.prepare(THREADS)


@pytest.fixture(autouse=True)
def no_synthetic_data() -> Iterator[None]:
    """Remove the data set without data, which a rehearsal adds to those of its process."""
    yield
    read_table("datasets").pop(SYNTHETIC, None)
