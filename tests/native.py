import os
import platform

import pytest

from train.errors import PreflightError
from train.native import library


def find_obstacle() -> str:
    """Return why no library can be built on this machine; a library that should work is not looked at."""
    if os.environ.get(library.VARIABLE):
        return ""
    try:
        library.find_compiler()
    except PreflightError as error:
        return error.why
    return library.explain_processor()


def list_instructions() -> list[str]:
    """Return the instruction sets that libraries for this machine have."""
    return [*library.PROCESSORS[platform.machine()].instructions]


def is_required() -> bool:
    return bool(os.environ.get("TOOLKIT_REQUIRE_NATIVE"))


needs_native = pytest.mark.skipif(bool(find_obstacle()) and not is_required(), reason=find_obstacle())
