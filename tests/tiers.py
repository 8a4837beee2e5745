"""Parameters of tests that ``make test`` leaves out and ``make test-all`` runs."""

from typing import Any

import pytest


def slow(*values: object, **options: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow, **options)
