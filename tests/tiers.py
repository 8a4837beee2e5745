from typing import Any

import pytest


def slow(*values: object, **options: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow, **options)


def weekly(*values: object, **options: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.weekly, **options)
