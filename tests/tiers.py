"""Parameters of tests that ``make test`` leaves out and ``make test-all`` does not."""

from typing import Any

import pytest


def slow(*values: object, **options: Any) -> Any:
    """Return these values as a parameter of a test that is slow with them."""
    return pytest.param(*values, marks=pytest.mark.slow, **options)
