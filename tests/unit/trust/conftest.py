from pathlib import Path

import pytest

from tests.command import Run
from tests.makers.canary import Canary


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "here").mkdir()
    return Run(tmp_path / "here")
