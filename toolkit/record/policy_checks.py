"""Checks what a policy asks for besides signatures: second builders, replays, and a TensorFlow without advisories."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from toolkit import signing
from toolkit.artifacts import Artifact, Run, SmokeReport, Wheel
from toolkit.artifacts.wheel import has_foreign_results, read_record
from toolkit.errors import IntegrityError, ToolkitError
from toolkit.findings import Finding
from toolkit.policy_requirements import Replay, Severity
from toolkit.record import audit, rebuild, software
from toolkit.record.rebuild import Level
from toolkit.signing import Policy
from toolkit.versions.rules import describe_fix

DAY: Final = 86400
SKEW: Final = 600
"""Seconds by which the clock of another machine may be ahead."""


def check(artifact: Artifact, policy: Policy, accepted: Level) -> list[Finding]:
    """Return whether an artifact, whose signature holds, has what a policy asks for besides.

    ``accepted``: the lowest level of a second build that counts.
    """
    try:
        return list(_check(artifact, policy, accepted))
    except ToolkitError as error:
        return [_refuse("require", error.what, "make it again")]


def _accept(name: str, why: str) -> Finding:
    return Finding(id=name, state="ok", evidence=why)


def _refuse(name: str, why: str, remedy: str) -> Finding:
    return Finding(id=name, state="fail", evidence=why, remedy=remedy)


def _check(artifact: Artifact, policy: Policy, accepted: Level) -> Iterator[Finding]:
    demands = policy.demands
    if isinstance(artifact, Wheel) and demands.second_builder:
        yield _check_builders(artifact.folder, policy, accepted, always=demands.second_builder == "always")
    if isinstance(artifact, Run) and demands.replay:
        yield _check_replay(artifact, policy, demands.replay)
    if not isinstance(artifact, SmokeReport) and demands.no_advisories:
        yield _check_advisories(artifact.find_tensorflow(), demands.no_advisories)


def _check_builders(folder: Path, policy: Policy, accepted: Level, *, always: bool) -> Finding:
    record = read_record(folder)
    if not always and not has_foreign_results(record):
        return _accept("second-builder", "not asked for: no result in the wheel is of a cache or an executor")
    found = rebuild.count_builders(folder, policy, accepted)
    if found.facts["builds"] >= 2:
        return _accept("second-builder", found.evidence)
    return _refuse(
        "second-builder",
        f"the policy asks for a second builder of this wheel: {found.evidence}",
        f"`toolkit reproduce {folder} --sign KEY` by another key that may sign a `rebuild`",
    )


def _check_replay(run: Run, policy: Policy, asked: Replay) -> Finding:
    why = []
    for record in signing.list_comments(run.folder, "replay"):
        try:
            names, count, age = _read_replay(record, run, policy)
        except IntegrityError as error:
            why.append(error.what)
            continue
        said = f"{names} trained {count} stretches again {max(age, 0) / DAY:.1f} days ago"
        if count >= asked.stretches and age <= asked.days * DAY:
            return _accept("replay", said)
        why.append(said)
    return _refuse(
        "replay",
        f"the policy asks for {asked.stretches} stretches trained again in the last {asked.days} days: "
        f"{'; '.join(why) or 'no statement is here'}",
        f"`toolkit reproduce {run.folder} --stretches {asked.stretches} --sign KEY` by another key that may sign a "
        "`replay`",
    )


def _read_replay(record: Path, run: Run, policy: Policy) -> tuple[str, int, float]:
    """Return who says that stretches were trained again, how many, and how many seconds ago.

    Raises IntegrityError if nobody who may says so, or if the statement is about something else.
    """
    trainers = run.list_signers(policy)
    signers, statement = signing.read(record, "replay", policy)
    others = [each.name for each in signers if each.key.keyid not in trainers]
    if not others:
        raise IntegrityError(f"{', '.join(each.name for each in signers)} signed the run too, and is no other")
    stated = audit.read_statement(statement)
    if statement.subjects != run.make_statement().subjects:
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
        return _accept("no-advisories", f"the version table has no {asked} for TensorFlow {tensorflow}")
    return _refuse(
        "no-advisories",
        f"TensorFlow {tensorflow} has {', '.join(found)}, and the policy allows no {asked}",
        "take a version that has none: `toolkit matrix` lists them",
    )
