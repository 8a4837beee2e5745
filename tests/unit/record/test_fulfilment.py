"""What a policy asks for besides signatures: each demand in a chain that lacks it, and in one that has it."""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.unit.record import maker, signed
from tests.unit.record.signed import World
from toolkit import artifacts, keys, signing
from toolkit.artifacts import find, open_wheel
from toolkit.cli import app
from toolkit.errors import IntegrityError, UsageError
from toolkit.findings import check
from toolkit.record import policy_checks, rebuild, retraining, verification
from toolkit.record.rebuild import Comparison
from toolkit.versions import load_table
from toolkit.wheel import wheel_documents

DAY = 86400


def ask(world: World, **demands: object) -> None:
    """Write a policy with demands, whose keys `second` may sign second builds and replays."""
    for name in ("second", "owner"):
        if not (world.root / name).exists():
            keys.make(world.root / name)
    may: Mapping[str, list[str]] = {**signed.MAY, "second": ["rebuild", "replay"], "owner": ["smoke"]}
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


def replay(
    world: World, who: str = "second", *, stretches: int = 5, age: float = 0, failed: bool = False, **edits: Any
) -> Path:
    """Sign what `reproduce --stretches` signs, without training anything again."""
    subjects = find(str(world.run), signed.STATE).make_statement().subjects
    repeated = check("steps 1 to 10", not failed, "")
    outcome = retraining.Audit(
        seed="1", asked=stretches, stretches=9, subjects=subjects, findings=(repeated,), misses={}
    )
    path = retraining.sign(world.run, outcome, keys.load(who))
    change_statement(path, {"time": wheel_documents.stamp(time.time() - age), **edits}, who)
    return path


def change_statement(path: Path, predicate: Mapping[str, Any], who: str, kind: str = retraining.PREDICATE) -> None:
    """Sign the statement of an audit again, with other fields of its predicate."""
    record = path.with_name(path.name.removeprefix("attestation-").removesuffix(".dsse.json"))
    stated = signing.parse_statement(signing._read_envelope(path).payload, "replay")
    changed = replace(stated, predicate_type=kind, predicate={**stated.predicate, **predicate})
    signing.write(record, changed, keys.load(who), replace=True)


def state_as_before(world: World, result: str = "PASSED", levels: object = ("TOOLKIT_REPLAYED_5",)) -> None:
    """Sign what `verify --replay 5 --sign` of earlier versions signed: a verification summary of SLSA."""
    predicate = {
        "verifier": {"id": "urn:x-tensorflow-toolkit:verifier:v1", "version": {"toolkit": "1.0.0"}},
        "timeVerified": wheel_documents.stamp(time.time()),
        "verificationResult": result,
        "verifiedLevels": levels,
        "slsaVersion": "1.1",
        "result": None,
    }
    change_statement(replay(world), predicate, "second", "https://slsa.dev/verification_summary/v1")


REPLAYS: dict[str, tuple[Callable[[World], object], str]] = {
    "none": (str, "no statement is here"),
    "too old": (lambda world: replay(world, age=31 * DAY), "second trained 5 stretches again 31.0 days ago"),
    "too few stretches": (lambda world: replay(world, stretches=4), "second trained 4 stretches again 0.0 days ago"),
    "failed": (lambda world: replay(world, failed=True), "second found that the run does not hold"),
    "of a later time": (lambda world: replay(world, age=-DAY), "is of a later time than it is now"),
    "without a time": (lambda world: replay(world, time="now"), "does not say when"),
    "without a number": (lambda world: replay(world, stretches=True), "trained 0 stretches"),
    "failed, by an earlier version": (lambda world: state_as_before(world, "FAILED"), "found that the run does not"),
    "without levels": (lambda world: state_as_before(world, levels="TOOLKIT_REPLAYED_9"), "trained 0 stretches"),
    "of another type": (
        lambda world: change_statement(replay(world), {}, "second", "https://in-toto.io/attestation/x"),
        "is not of stretches that were trained again",
    ),
    "key that may not": (lambda world: replay(world, "owner"), "owner may sign smoke: not replay"),
    "run changed since": (
        lambda world: (
            replay(world),
            maker.change_json(world.run / "manifest.json", lambda value: value.update(seconds=1)),
            world.sign(world.run, "trainer"),
        ),
        "of another run, or of another state of it",
    ),
    "statement changed": (
        lambda world: maker.change_json(replay(world), lambda value: value["signatures"][0].update(sig="AAAA")),
        "the signature is not that of second",
    ),
    "statement of another kind": (
        lambda world: shutil.copy(signing.locate(world.run), world.run / "attestation-replay-00000000.dsse.json"),
        "trainer may sign run: not replay",
    ),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_a_run_without_the_replay_that_is_asked_for_is_refused(world: World, name: str) -> None:
    ask(world, replay={"days": 30, "stretches": 5})
    change, why = REPLAYS[name]
    change(world)
    refuse(
        world.verify(world.run),
        "replay: the policy asks for 5 stretches trained again in the last 30 days: ",
        why,
        "--stretches 5 --sign KEY` by another key that may sign a `replay`",
    )


def test_a_run_with_a_young_replay_holds(world: World) -> None:
    ask(world, replay={"days": 30, "stretches": 5})
    replay(world, age=29 * DAY)
    done = world.verify(world.run)
    assert done.exit_code == 0, done.output
    assert "second trained 5 stretches again 29.0 days ago" in done.output
    assert world.verify(world.wheel).exit_code == 0


def test_a_replay_that_an_earlier_version_signed_holds(world: World) -> None:
    ask(world, replay={"days": 30, "stretches": 5})
    state_as_before(world)
    done = world.verify(world.run)
    assert done.exit_code == 0, done.output
    assert "second trained 5 stretches again 0.0 days ago" in done.output


def test_the_trainer_is_no_second_one(world: World) -> None:
    ask(world, replay={"days": 30, "stretches": 5})
    replay(world)
    world.sign(world.run, "trainer")
    text = (world.root / "policy.yaml").read_text()
    value = yaml.safe_load(text)
    value["signers"] = [{**each, "may": ["run", "replay"]} for each in value["signers"] if each["name"] == "second"]
    value["signers"] += [each for each in yaml.safe_load(text)["signers"] if each["name"] != "second"]
    (world.root / "policy.yaml").write_text(yaml.safe_dump(value))
    assert world.verify(world.run).exit_code == 0
    described = signing._read_envelope(signing.locate(world.run)).payload
    signing.write(world.run, signing.parse_statement(described, "run"), keys.load("second"), replace=False)
    refuse(world.verify(world.run), "second signed the run too, and is no other")


def test_a_signature_of_a_model_covers_no_statement_about_it(world: World) -> None:
    keys.make(world.root / "model", "p256")
    (world.run / signing.ENVELOPE).unlink()
    words = ["sign", str(world.run), "--key", "model", "--model-signing"]
    assert CliRunner().invoke(app, words).exit_code == 0
    ask(world, replay={"days": 30, "stretches": 5})
    value = yaml.safe_load((world.root / "policy.yaml").read_text())
    value["signers"].append({"name": "model", "key": "model.pub", "may": ["run"]})
    (world.root / "policy.yaml").write_text(yaml.safe_dump(value))
    replay(world)
    done = world.verify(world.run)
    assert done.exit_code == 0, done.output


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
        ({"second-builders": "always"}, "`require` has second-builder, no-advisories, replay, and nothing else"),
        ({"second-builder": "never"}, "`second-builder` is one of cached, always: never"),
        ({"no-advisories": "severe"}, "`no-advisories` is one of any, low, medium, high, critical"),
        ({"replay": 30}, "`replay` has days, stretches, and nothing else"),
        ({"replay": {"days": 30}}, "`replay` has days, stretches, and nothing else"),
        ({"replay": {"days": 0, "stretches": 1}}, "`days` of `replay` is a whole number above 0: 0"),
        ({"replay": {"days": True, "stretches": 1}}, "`days` of `replay` is a whole number above 0: True"),
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
