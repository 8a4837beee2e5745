import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from train import peers
from train.errors import PreflightError, UsageError

Find = Callable[[Mapping[str, str]], dict[str, str]]


def read(variables: Mapping[str, str]) -> tuple[list[str], int]:
    found = json.loads(variables["TF_CONFIG"])
    assert found["task"]["type"] == "worker"
    return found["cluster"]["worker"], found["task"]["index"]


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\nprintf 'node2\\nnode10\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("scontrol")
@pytest.mark.parametrize(
    ("tasks", "addresses"),
    [(2, ["node2:3000", "node10:3001"]), (4, ["node2:3000", "node2:3001", "node10:3002", "node10:3003"])],
)
def test_tasks_of_slurm_keep_the_order_of_their_ranks(tasks: int, addresses: list[str]) -> None:
    variables = {"SLURM_PROCID": "1", "SLURM_NTASKS": str(tasks), "SLURM_STEP_NODELIST": "node[2,10]"}
    found = peers.find_slurm({**variables, "TOOLKIT_PORT": "3000"})
    assert read(found) == (addresses, 1)


@pytest.mark.usefixtures("scontrol")
def test_tasks_that_are_dealt_out_unevenly_are_refused() -> None:
    variables = {"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "SLURM_STEP_NODELIST": "node[2,10]"}
    with pytest.raises(PreflightError, match="do not share"):
        peers.find_slurm(variables)


REPLICAS = ("10.0.0.10", "10.0.0.9")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: Any) -> list[Any]:
        return [(None, None, None, "", (address, 0)) for address in REPLICAS]

    monkeypatch.setattr(socket, "gethostbyname", lambda _: REPLICAS[0])
    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.usefixtures("network")
def test_a_replica_of_compose_finds_its_place() -> None:
    found = peers.find_compose({"TOOLKIT_SERVICE": "worker", "TOOLKIT_WORKERS": "2"})
    assert read(found) == (["10.0.0.9:2222", "10.0.0.10:2222"], 1)
    assert found["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.usefixtures("network")
def test_another_container_is_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", lambda _: "10.0.0.7")
    with pytest.raises(PreflightError, match="does not lead to this container"):
        peers.find_compose({"TOOLKIT_SERVICE": "worker", "TOOLKIT_WORKERS": "2"})


@pytest.mark.usefixtures("network")
def test_replicas_are_awaited() -> None:
    assert peers.wait_for_replicas("worker", 0, settled=0.0) == ["10.0.0.9", "10.0.0.10"]
    with pytest.raises(PreflightError, match="2 containers of the service worker are running, not 3"):
        peers.wait_for_replicas("worker", 3, patience=0.0)


@pytest.mark.parametrize("arguments", [[], ["cron", "digits"], ["slurm", "digits"]])
def test_what_tells_no_place_is_wrong_usage(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SLURM_PROCID", raising=False)
    assert peers.main(arguments) == UsageError.exit_code
    assert capsys.readouterr().err.startswith("error: ")


SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "node[2,10]"}


@pytest.mark.usefixtures("network", "scontrol")
@pytest.mark.parametrize(
    ("find", "variables", "name"),
    [
        (peers.find_compose, {"TOOLKIT_SERVICE": "worker", "TOOLKIT_WORKERS": "two"}, "TOOLKIT_WORKERS"),
        *(
            (peers.find_slurm, {**SLURM, name: "two"}, name)
            for name in ("SLURM_PROCID", "SLURM_NTASKS", "TOOLKIT_PORT")
        ),
    ],
)
def test_a_variable_that_is_no_number_is_named(find: Find, variables: Mapping[str, str], name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 'two', and not a whole number"):
        find(variables)


def test_a_machine_without_scontrol_gets_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="scontrol cannot be run on this machine"):
        peers.find_slurm(SLURM)
