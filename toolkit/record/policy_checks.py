"""Checks what a policy asks for besides signatures: second builders, replays, and a TensorFlow without advisories."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, get_args

from toolkit import signing
from toolkit.errors import IntegrityError, ToolkitError
from toolkit.findings import Finding, check, prefix
from toolkit.policy_requirements import Replay, Severity
from toolkit.record import Target, attestation, audit, rebuild, software, verify_wheel
from toolkit.record.rebuild import Level
from toolkit.signing import Policy
from toolkit.versions.rules import describe_fix

DAY: Final = 86400
SKEW: Final = 600
"""Seconds by which the clock of another machine may be ahead."""


def check_demands(target: Target, state: Path, policy: Policy, accepted: Level) -> list[Finding]:
    """Return whether a thing, and each link behind it that is on this machine, has what a policy asks for besides.

    Their signatures hold already. ``accepted``: the lowest level of a second build that counts.
    """
    found: list[Finding] = []
    for name, link in [("", target), *attestation.follow(target, state)]:
        try:
            items = list(_check(link, state, policy, accepted))
        except ToolkitError as error:
            items = [_refuse("require", error.what, "make it again")]
        found += prefix(name, items) if name else items
    return found


def _refuse(name: str, why: str, remedy: str) -> Finding:
    return replace(check(name, False, why), remedy=remedy)


def _check(target: Target, state: Path, policy: Policy, accepted: Level) -> Iterator[Finding]:
    demands = policy.demands
    if target.kind == "wheel" and demands.second_builder:
        yield _check_builders(target.folder, policy, accepted, always=demands.second_builder == "always")
    if target.kind == "run" and demands.replay:
        yield _check_replay(target, state, policy, demands.replay)
    if target.kind != "smoke" and demands.no_advisories:
        yield _check_advisories(software.find_tensorflow(target, state), demands.no_advisories)


def _check_builders(folder: Path, policy: Policy, accepted: Level, *, always: bool) -> Finding:
    record = verify_wheel.read_record(folder)
    if not always and not verify_wheel.has_foreign_results(record):
        return check("second-builder", True, "not asked for: no result in the wheel is of a cache or an executor")
    found = rebuild.count_builders(folder, policy, accepted)
    if found.facts["builds"] >= 2:
        return check("second-builder", True, found.evidence)
    return _refuse(
        "second-builder",
        f"the policy asks for a second builder of this wheel: {found.evidence}",
        f"`toolkit reproduce {folder} --sign KEY` by another key that may sign a `rebuild`",
    )


def _check_replay(target: Target, state: Path, policy: Policy, asked: Replay) -> Finding:
    why = []
    for record in signing.list_comments(target.folder, "replay"):
        try:
            names, count, age = _read_replay(record, target, state, policy)
        except IntegrityError as error:
            why.append(error.what)
            continue
        said = f"{names} trained {count} stretches again {max(age, 0) / DAY:.1f} days ago"
        if count >= asked.stretches and age <= asked.days * DAY:
            return check("replay", True, said)
        why.append(said)
    return _refuse(
        "replay",
        f"the policy asks for {asked.stretches} stretches trained again in the last {asked.days} days: "
        f"{'; '.join(why) or 'no statement is here'}",
        f"`toolkit reproduce {target.folder} --stretches {asked.stretches} --sign KEY` by another key that may sign a "
        "`replay`",
    )


def _read_replay(record: Path, target: Target, state: Path, policy: Policy) -> tuple[str, int, float]:
    """Return who says that stretches were trained again, how many, and how many seconds ago.

    Raises IntegrityError: nobody who may, or the statement says something else.
    """
    trainers = attestation.list_signers(target, policy)
    signers, statement = signing.read(record, "replay", policy)
    others = [each.name for each in signers if each.key.keyid not in trainers]
    if not others:
        raise IntegrityError(f"{', '.join(each.name for each in signers)} signed the run too, and is no other")
    stated = audit.read_statement(statement)
    if statement.subjects != attestation.describe(target, state).subjects:
        raise IntegrityError(f"the statement of {', '.join(others)} is of another run, or of another state of it")
    if not stated.passed:
        raise IntegrityError(f"{', '.join(others)} found that the run does not hold")
    if stated.age < -SKEW:
        raise IntegrityError("a statement is of a later time than it is now")
    return ", ".join(others), stated.stretches, stated.age


def _check_advisories(tensorflow: str, least: Severity) -> Finding:
    order = get_args(Severity)
    # An advisory whose severity is not known may be of any.
    found = [
        f"{item.id} ({item.severity or 'severity not known'}, {describe_fix(item)})"
        for item in software.list_advisories(tensorflow)
        if not item.severity or order.index(item.severity) >= order.index(least)
    ]
    asked = "advisories" if least == "any" else f"advisories of severity {least} or above"
    if not found:
        return check("no-advisories", True, f"the version table has no {asked} for TensorFlow {tensorflow}")
    return _refuse(
        "no-advisories",
        f"TensorFlow {tensorflow} has {', '.join(found)}, and the policy allows no {asked}",
        "take a version that has none: `toolkit matrix` lists them",
    )
