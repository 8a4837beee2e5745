"""The files of compose and the program agree, so that neither makes again what the other made."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit import lock
from toolkit.engine import container

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return value


@pytest.mark.parametrize("name", ["train", "smoke", "tensorboard"])
def test_every_service_builds_with_the_time_stamp_of_the_lock(services: dict[str, Any], name: str) -> None:
    """Without it the environment of 2 GB is made a second time, for other time stamps only."""
    assert services[name]["build"]["args"]["SOURCE_DATE_EPOCH"] == str(lock.SOURCE_DATE_EPOCH)


def test_containers_are_confined_as_those_of_the_program_are(services: dict[str, Any]) -> None:
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["pids_limit"] == container.PROCESSES
        assert service["tmpfs"] == [f"{path}:{options}" for path, options in container.TEMPORARY.items()]
