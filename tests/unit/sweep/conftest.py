from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import loaded
from tests.command import Run
from tests.unit.record import maker

OPTIONS = {"depth": 10, "epochs": 1, "steps": 3, "batch-size": 64, "kernels": "stock", "threads": 1}
"""A run of a second."""


def write(folder: Path, value: object) -> str:
    (folder / "seeds.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    return "seeds.yaml"


class Commands(Run):
    """Runs commands beside a host environment, whose Python has loaded TensorFlow already."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        maker.make_environment(folder / "state", loaded.start())
        self.variables = {"TOOLKIT_STATE": str(folder / "state"), "TOOLKIT_ENGINE": "host"}
        self.variables["TOOLKIT_TENSORFLOW"] = maker.SPEC.tensorflow

    def __call__(self, *arguments: str, **environment: str) -> Any:
        return super().__call__(*arguments, **{**self.variables, **environment})


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)
