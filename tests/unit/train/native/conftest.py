import ctypes
from collections.abc import Iterator

import pytest

from tests.native import find_obstacle, is_required
from train.native import library, operations


@pytest.fixture(scope="session", autouse=True)
def native() -> None:
    obstacle = find_obstacle()
    if not obstacle:
        operations.set_threads(2)
    elif is_required():
        pytest.fail(obstacle)
    else:
        pytest.skip(obstacle)


@pytest.fixture
def kernels() -> Iterator[ctypes.CDLL]:
    operations.load()
    loaded = ctypes.CDLL(str(library.find().path))
    loaded.toolkit_instructions.restype = ctypes.c_char_p
    chosen = loaded.toolkit_instructions()
    yield loaded
    loaded.toolkit_choose(chosen)
    operations.set_threads(2)
