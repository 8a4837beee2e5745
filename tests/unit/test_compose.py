from pathlib import Path
from typing import Any

import pytest
import yaml

from toolkit.base import naming
from toolkit.engine import Job, container

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    return value


UNITS = {"1g": "1gb"}
"""The sizes that compose writes in another way."""


def test_containers_are_confined_as_those_of_the_program_are(services: dict[str, Any]) -> None:
    ours = container.describe(Job(title="x", argv=()), image="image")
    for service in services.values():
        assert service["read_only"] is ours.read_only
        assert service["cap_drop"] == list(ours.cap_drop)
        assert service["security_opt"] == [f"{option}:true" for option in ours.security_opt]
        assert service["pids_limit"] == ours.pids_limit
        assert service["init"] is ours.init
        assert service["tmpfs"] == [f"{path}:{options}" for path, options in ours.tmpfs.items()]
        assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & service.keys()
        assert service["userns_mode"] == "${TOOLKIT_USERNS:-}", "empty, but for an engine that maps users"
        assert service["labels"] == {naming.OWNER_LABEL: "toolkit", naming.STATE_LABEL: "${TOOLKIT_STATE_ID:-}"}
        assert all(volume.split(":")[0] in {"./runs", "data", "./toolkit/checks"} for volume in service["volumes"])
    assert services["smoke"]["network_mode"] == ours.network, "the checks need no network"
    assert services["train"]["shm_size"] == UNITS[ours.shm_size]


def test_what_clones_share_has_no_label_of_one_of_them(services: dict[str, Any]) -> None:
    """Compose offers to make a volume anew, without its data, when its labels have changed."""
    value = yaml.safe_load((ROOT / "compose.yaml").read_text())
    shared = [value["volumes"]["data"], value["networks"]["serve"], *(each["build"] for each in services.values())]
    assert all(each["labels"] == {naming.OWNER_LABEL: "toolkit"} for each in shared)
