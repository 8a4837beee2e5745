from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.makers.publication import PLAN, finish_build, publish
from toolkit.base import manifest
from toolkit.base.manifest import Manifest
from toolkit.cli import app
from toolkit.records import open_wheel, rebuild, second_build
from toolkit.records.rebuild import Comparison, Difference, rank

CODE = Difference(name="tensorflow/libtensorflow_cc.so.2", kind="content", detail="machine code: 1 of 9 bytes")


@pytest.fixture
def record(tmp_path: Path) -> Manifest:
    return publish(finish_build(tmp_path / "staging"), tmp_path / PLAN.name)


def compare(*found: Difference) -> Comparison:
    return Comparison(wheel="", level=rank(list(found)), differences=found, inputs=(), seconds=1)


def test_the_command_fails_for_a_difference_in_code(
    record: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "rebuild", lambda *_, **__: compare(CODE))
    command = ["reproduce", str(tmp_path / PLAN.name)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 7, done.output
    assert CODE.name in done.output
    assert "trust" in done.output
    assert CliRunner().invoke(app, [*command, "--accept", "R1"]).exit_code == 0
    assert CliRunner().invoke(app, [*command, "--accept", "R0"]).exit_code == 2


def test_services_of_the_first_build_are_not_asked_again() -> None:
    services = {"REMOTE_CACHE": "grpc://c", "REMOTE_EXECUTOR": "grpc://e", "REMOTE_INSTANCE_NAME": "main"}
    asked = replace(PLAN, arguments={**PLAN.arguments, **services})
    changed = second_build.change_plan(asked, cache_id="fresh")
    assert asked.arguments.keys() - changed.arguments.keys() == services.keys()


def describe_trust(record: Manifest, ran: dict[str, Any], root: Path) -> str:
    record.facts["bazel"] = ran
    manifest.write(root / PLAN.name, record)
    return open_wheel(root / PLAN.name).describe_trust()


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        ({"executed": 3, "cached": 2, "cached_by": {"disk cache hit": 2}, "runners": {}}, "2 disk cache hits"),
        ({"executed": 9, "remote": 8, "runners": {}}, "8 on the remote executor"),
    ],
)
def test_those_whose_results_are_in_the_wheel_are_named(
    record: Manifest, tmp_path: Path, ran: dict[str, Any], said: str
) -> None:
    trust = describe_trust(record, ran, tmp_path)
    assert said in trust
    assert "are trusted" in trust


def test_a_build_without_caches_trusts_its_machine_alone(record: Manifest, tmp_path: Path) -> None:
    trust = describe_trust(record, {"executed": 3, "runners": {"local": 3}}, tmp_path)
    assert "none of them from a cache: only the machine that built it is trusted" in trust
