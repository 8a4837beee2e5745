"""Native tests need a library that works here. It is built once and stays in the user's cache."""

import ctypes
import os
from collections.abc import Iterator

import pytest

from train.errors import PreflightError
from train.native import library, operations


def _find_obstacle() -> str:
    """Return why no library can be built on this machine; a library that should work is not looked at."""
    if os.environ.get(library.VARIABLE):
        return ""
    try:
        library.find_compiler()
    except PreflightError as error:
        return error.why
    return library.explain_processor()


@pytest.fixture(scope="session", autouse=True)
def native() -> None:
    obstacle = _find_obstacle()
    if not obstacle:
        operations.set_threads(2)
    elif os.environ.get("TOOLKIT_REQUIRE_NATIVE"):
        pytest.fail(obstacle)
    else:
        pytest.skip(obstacle)


@pytest.fixture
def kernels() -> Iterator[ctypes.CDLL]:
    """Yield the library, whose threads and instruction set a test may change."""
    operations.load()
    loaded = ctypes.CDLL(str(library.find().path))
    loaded.toolkit_instructions.restype = ctypes.c_char_p
    chosen = loaded.toolkit_instructions()
    yield loaded
    loaded.toolkit_choose(chosen)
    operations.set_threads(2)
