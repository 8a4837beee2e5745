import os
from pathlib import Path
from typing import Any

import pytest

UPSTREAM = Path(os.environ.get("TOOLKIT_UPSTREAM", "/nowhere"))
needs_upstream = pytest.mark.skipif(not UPSTREAM.is_dir(), reason="TOOLKIT_UPSTREAM names no folder of git directories")


def slow(*values: object, **options: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def weekly(*values: object, **options: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.weekly, **options)


def find_repository(name: str) -> Path:
    """Return the git directory of one of upstream's repositories, such as ``google/tsl``."""
    return UPSTREAM / name.replace("/", "+") / "repo"
