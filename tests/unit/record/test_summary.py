"""Verification summaries: their fields, and that they say what was found."""

import base64
import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.record import signed
from tests.unit.record.signed import World
from toolkit import __version__, digest, keys
from toolkit.record import attestation, find, verification_summary

REQUIRED = {"verifier", "resourceUri", "policy", "verificationResult", "verifiedLevels"}
OPTIONAL = {"timeVerified", "inputAttestations", "dependencyLevels", "slsaVersion"}
"""Fields of https://slsa.dev/spec/v1.1/verification_summary."""


def check(value: Any) -> dict[str, Any]:
    """Return the predicate of a statement that keeps the rules of the specification."""
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["predicateType"] == "https://slsa.dev/verification_summary/v1"
    assert all(len(each["digest"]["sha256"]) == 64 for each in value["subject"])
    assert len({each["name"] for each in value["subject"]}) == len(value["subject"]) > 0
    predicate: dict[str, Any] = value["predicate"]
    assert predicate.keys() >= REQUIRED
    assert predicate.keys() <= REQUIRED | OPTIONAL
    assert predicate["verifier"] == {"id": verification_summary.VERIFIER, "version": {"toolkit": __version__}}
    assert datetime.fromisoformat(predicate["timeVerified"]).tzinfo
    policy = base64.b64decode(predicate["policy"]["content"])
    assert predicate["policy"]["digest"]["sha256"] == digest.digest_bytes(policy).removeprefix("sha256:")
    assert predicate["policy"]["uri"] == verification_summary.POLICY
    levels = predicate["verifiedLevels"]
    assert predicate["verificationResult"] == ("FAILED" if levels == ["FAILED"] else "PASSED")
    claimed = [each for each in levels if each.startswith("SLSA_")]
    assert claimed == ([] if levels == ["FAILED"] else ["SLSA_BUILD_LEVEL_UNEVALUATED"])
    return predicate


def read(place: Path) -> Any:
    return json.loads(place.read_text())


@pytest.mark.parametrize(
    ("record", "levels", "inputs"),
    [
        ("wheel", ["TOOLKIT_RECORDED", "TOOLKIT_SIGNED", "TOOLKIT_COMPLETE", "TOOLKIT_BUILDERS_1"], 1),
        ("environment", ["TOOLKIT_RECORDED", "TOOLKIT_SIGNED", "TOOLKIT_COMPLETE"], 3),
        ("image", ["TOOLKIT_RECORDED", "TOOLKIT_SIGNED", "TOOLKIT_COMPLETE"], 1),
        ("report", ["TOOLKIT_RECORDED", "TOOLKIT_SIGNED", "TOOLKIT_COMPLETE"], 3),
        ("run", ["TOOLKIT_RECORDED", "TOOLKIT_SIGNED", "TOOLKIT_COMPLETE"], 4),
    ],
)
def test_a_summary_says_what_was_verified(world: World, record: str, levels: list[str], inputs: int) -> None:
    target = getattr(world, record)
    done = world.verify(target, "--summary", "summary.json")
    assert done.exit_code == 0, done.output
    value = read(world.root / "summary.json")
    predicate = check(value)
    assert predicate["verifiedLevels"] == [verification_summary.UNEVALUATED, *levels]
    described = attestation.describe(find(str(target)), signed.STATE)
    assert {each["name"]: f"sha256:{each['digest']['sha256']}" for each in value["subject"]} == described.subjects
    used = predicate["inputAttestations"]
    assert len(used) == inputs
    own = attestation.list_envelopes(find(str(target)), signed.STATE)
    assert [(each["name"], f"sha256:{each['digest']['sha256']}") for each in used] == [
        (name, digest.read_file(path)) for name, path in own
    ]


def test_only_what_lacks_nothing_is_called_complete(world: World) -> None:
    shutil.rmtree(world.environment)
    assert world.verify(world.run, "--summary", "summary.json").exit_code == 0
    levels = check(read(world.root / "summary.json"))["verifiedLevels"]
    assert levels == [verification_summary.UNEVALUATED, "TOOLKIT_RECORDED", "TOOLKIT_SIGNED"]
    assert world.verify(world.run, "--summary", "summary.json", "--strict").exit_code == 7
    assert check(read(world.root / "summary.json"))["verificationResult"] == "FAILED"


def test_the_policy_is_who_was_trusted_for_what(world: World) -> None:
    world.verify(world.wheel, "--summary", "summary.json", "--resource-uri", "https://example.org/one.whl")
    predicate = check(read(world.root / "summary.json"))
    assert predicate["resourceUri"] == "https://example.org/one.whl"
    policy = json.loads(base64.b64decode(predicate["policy"]["content"]))
    assert {each["name"]: each["may"] for each in policy["signers"]} == signed.MAY
    assert policy["strict"] is False
    world.verify(world.wheel, "--summary", "summary.json")
    archive = digest.read_file(world.archive)
    expected = f"pkg:generic/{world.archive.name}?checksum={archive}"
    assert check(read(world.root / "summary.json"))["resourceUri"].replace("%2B", "+") == expected


def test_nothing_signed_is_claimed_without_trust(world: World) -> None:
    done = world.verify(world.environment, "--summary", "summary.json", trust=())
    assert done.exit_code == 0, done.output
    predicate = check(read(world.root / "summary.json"))
    assert "TOOLKIT_SIGNED" not in predicate["verifiedLevels"]
    assert predicate["inputAttestations"] == []


FAILURES: dict[str, tuple[Callable[[World], object], int]] = {
    "changed": (lambda world: signed.flip(world.run / "curves.png"), 8),
    "not signed": (lambda world: (world.run / "attestation.dsse.json").unlink(), 8),
    "failed report": (
        lambda world: (
            world.report.write_text(
                json.dumps(signed.REPORT | {"verdict": "fail", "checks": [signed.CHECK | {"result": "fail"}]})
            ),
            world.sign(world.report, "checker"),
        ),
        7,
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_verification_is_told_as_failed(world: World, name: str) -> None:
    place = world.root / "summary.json"
    assert world.verify(world.run, "--summary", str(place)).exit_code == 0
    change, code = FAILURES[name]
    change(world)
    assert world.verify(world.run, "--summary", str(place)).exit_code == code
    assert check(read(place))["verificationResult"] == "FAILED"


def test_an_older_summary_does_not_outlive_a_damaged_record(world: World) -> None:
    place = world.root / "summary.json"
    place.write_text("{}")
    (world.run / "manifest.json").write_text("{")
    assert world.verify(world.run, "--summary", str(place)).exit_code == 8
    assert not place.exists()


def test_what_changes_meanwhile_gets_no_summary(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    look, place = verification_summary._look, world.root / "summary.json"

    def change(asked: verification_summary.Summary) -> object:
        found = look(asked)
        signed.flip(world.run / "curves.png")
        return found

    monkeypatch.setattr(verification_summary, "_look", change)
    asked = verification_summary.Summary(target=find(str(world.run)), state=signed.STATE, policy=(), options={})
    with (
        pytest.raises(verification_summary.IntegrityError, match="has changed while it was verified"),
        verification_summary.writing(place, asked, None),
    ):
        pass
    assert not place.exists()


def test_a_summary_is_signed(world: World) -> None:
    keys.make(world.root / "verifier")
    done = world.verify(world.run, "--summary", "summary.json", "--sign", str(world.root / "verifier"))
    assert done.exit_code == 0, done.output
    value = read(world.root / "summary.json")
    assert value["signatures"][0]["keyid"] == keys.load(str(world.root / "verifier")).public_key.keyid
    predicate = check(json.loads(base64.b64decode(value["payload"])))
    assert predicate["verificationResult"] == "PASSED"


def test_a_signed_summary_is_no_signature_of_the_run(world: World) -> None:
    """By a key that may sign runs, in the place of its envelope."""
    (world.root / "trainer").write_bytes(world.signers["trainer"].private_bytes)
    world.verify(world.run, "--summary", "summary.json", "--sign", str(world.root / "trainer"))
    (world.root / "summary.json").rename(world.run / "attestation.dsse.json")
    done = world.verify(world.run)
    assert done.exit_code == 8
    assert "the statement is not of a run" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resource-uri", "https://example.org/x"), "--resource-uri is for --summary"),
        (("--sign", "builder.pub"), "--sign is for --rebuild, --replay or --summary"),
        (("--summary", "dist/one/summary.json"), "would lie in what is verified"),
    ],
)
def test_options_that_do_not_fit_are_refused(world: World, words: tuple[str, ...], message: str) -> None:
    done = world.verify(world.wheel, *words)
    assert done.exit_code == 2
    assert message in done.output
    assert not (world.wheel / "summary.json").exists()
