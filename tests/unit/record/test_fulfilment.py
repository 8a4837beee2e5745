"""What a policy asks for besides signatures: each demand in a chain that lacks it, and in one that has it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from typer.testing import Result

from tests.unit.record import maker, signed
from tests.unit.record.signed import World
from toolkit import artifacts, keys
from toolkit.artifacts import find, open_wheel
from toolkit.errors import IntegrityError, UsageError
from toolkit.record import policy_checks, rebuild, verification
from toolkit.record.rebuild import Comparison
from toolkit.versions import load_table

if TYPE_CHECKING:
    from collections.abc import Mapping


def ask(world: World, **demands: object) -> None:
    """Write a policy with demands, whose keys `second` may sign second builds."""
    for name in ("second", "owner"):
        if not (world.root / name).exists():
            keys.make(world.root / name)
    may: Mapping[str, list[str]] = {**signed.MAY, "second": ["rebuild"], "owner": ["smoke"]}
    entries = [{"name": name, "key": f"{name}.pub", "may": kinds} for name, kinds in may.items()]
    asked = {name.replace("_", "-"): value for name, value in demands.items()}
    (world.root / "policy.yaml").write_text(yaml.safe_dump({"signers": entries, "require": asked}))


def refuse(done: Result, *said: str) -> None:
    assert done.exit_code == 8, done.output
    assert "findings of --trust do not hold" in done.stderr
    for each in said:
        assert each in done.stderr


def build_again(world: World, who: str = "second") -> Path:
    wheel = open_wheel(world.wheel)
    same = Comparison(wheel=wheel.read_record().digest, level="R3", differences=(), inputs=(), seconds=1)
    return rebuild.sign(wheel, same, keys.load(who))


def use_cache(world: World) -> None:
    """Let the signed record of the wheel say that results came from a cache."""
    maker.change_json(
        world.wheel / "manifest.json", lambda value: value["facts"]["bazel"].update(cached=3, cached_by={"disk": 3})
    )
    from toolkit.wheel import wheel_folder

    wheel_folder.write_sums(world.wheel)
    world.sign(world.wheel, "builder")


def test_a_wheel_with_cached_results_needs_a_second_builder(world: World) -> None:
    ask(world, second_builder="cached")
    assert world.verify(world.wheel).exit_code == 0
    use_cache(world)
    refuse(
        world.verify(world.wheel),
        "second-builder: the policy asks for a second builder of this wheel: 1 independent: builder",
        f"try: `toolkit reproduce {world.wheel} --sign KEY` by another key that may sign a `rebuild`",
    )
    build_again(world)
    done = world.verify(world.wheel)
    assert done.exit_code == 0, done.output
    assert "2 independent" in done.output


def test_a_policy_can_ask_for_a_second_builder_of_each_wheel(world: World) -> None:
    ask(world, second_builder="always")
    refuse(world.verify(world.wheel), "second-builder: ")
    refuse(world.verify(world.run), "wheel.second-builder: ")
    build_again(world)
    assert world.verify(world.wheel).exit_code == 0
    assert world.verify(world.run).exit_code == 0


@pytest.mark.parametrize("kind", ["wheel", "environment", "image", "run"])
def test_a_tensorflow_with_advisories_is_refused(world: World, kind: str) -> None:
    target = getattr(world, kind)
    assert find(str(target), signed.STATE).find_tensorflow().startswith("2.19.0")
    ask(world, no_advisories="high")
    refuse(
        world.verify(target),
        "no-advisories: TensorFlow 2.19.0",
        "has CVE-2026-2492 (high, fixed in 2.21.0), and the policy allows no advisories of severity high or above",
        "try: take a version that has none: `toolkit matrix` lists them",
    )
    ask(world, no_advisories="critical")
    done = world.verify(target)
    assert done.exit_code == 0, done.output


def test_an_advisory_of_unknown_severity_may_be_of_any(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    table = load_table()
    unknown = {name: replace(item, severity="") for name, item in table.advisories.items()}
    monkeypatch.setattr(policy_checks, "load_table", lambda: replace(table, advisories=unknown))
    ask(world, no_advisories="critical")
    refuse(world.verify(world.wheel), "CVE-2026-2492 (severity not known, fixed in 2.21.0)")
    monkeypatch.setattr(policy_checks, "load_table", lambda: replace(table, advisories={}))
    ask(world, no_advisories="any")
    assert world.verify(world.wheel).exit_code == 0


def test_nothing_is_said_of_a_version_that_the_table_does_not_know() -> None:
    assert [item.id for item in policy_checks.list_advisories("2.19.0+sm120")] == ["CVE-2026-2492"]
    assert policy_checks.list_advisories("2.21.0") == ()
    for version in ("2.16.1", "2.19.0rc1", "x"):
        with pytest.raises(IntegrityError, match=f"does not know TensorFlow {version}"):
            policy_checks.list_advisories(version)


def test_what_is_reused_must_have_what_is_asked_for(world: World) -> None:
    ask(world, second_builder="always", no_advisories="critical")
    policy = artifacts.read_policy([world.root / "policy.yaml"])
    with pytest.raises(IntegrityError, match="findings of --trust do not hold") as caught:
        verification.require_trusted(world.wheel, "", state=signed.STATE, policy=policy)
    assert "second-builder" in caught.value.why
    build_again(world)
    verification.require_trusted(world.wheel, "", state=signed.STATE, policy=policy)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (["x"], "and nothing else"),
        ({"second-builders": "always"}, "`require` has second-builder, no-advisories, and nothing else"),
        ({"second-builder": "never"}, "`second-builder` is one of cached, always: never"),
        ({"no-advisories": "severe"}, "`no-advisories` is one of any, low, medium, high, critical"),
        ({"log": {"origin": "x", "folder": "y"}}, "a private log is no longer kept: remove it from the policy"),
    ],
)
def test_another_demand_is_refused(world: World, value: object, why: str) -> None:
    ask(world)
    path = world.root / "policy.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "require": value}))
    with pytest.raises(UsageError, match="is no policy") as caught:
        artifacts.read_policy([path])
    assert why in caught.value.why


def test_one_policy_alone_may_ask(world: World) -> None:
    ask(world, no_advisories="any")
    shutil.copy("policy.yaml", "other.yaml")
    with pytest.raises(UsageError, match="two policies have `require`"):
        artifacts.read_policy([Path("policy.yaml"), Path("other.yaml")])
    assert artifacts.read_policy([Path("builder.pub"), Path("policy.yaml")]).demands.no_advisories == "any"
