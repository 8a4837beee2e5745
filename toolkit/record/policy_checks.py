"""Checks what a policy asks for besides signatures: second builders, and a TensorFlow without advisories."""

from collections.abc import Iterator
from typing import get_args

from packaging.version import InvalidVersion, Version

from toolkit.artifacts import Artifact, SmokeReport, Wheel
from toolkit.errors import IntegrityError, ToolkitError
from toolkit.findings import Finding
from toolkit.policy_requirements import Severity
from toolkit.record import rebuild
from toolkit.record.rebuild import Level
from toolkit.signing import Policy
from toolkit.versions import load_table
from toolkit.versions.rules import describe_fix
from toolkit.versions.table import Advisory


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
        yield _check_builders(artifact, policy, accepted, always=demands.second_builder == "always")
    if not isinstance(artifact, SmokeReport) and demands.no_advisories:
        yield _check_advisories(artifact.find_tensorflow(), demands.no_advisories)


def _check_builders(wheel: Wheel, policy: Policy, accepted: Level, *, always: bool) -> Finding:
    if not always and not wheel.has_foreign_results():
        return _accept("second-builder", "not asked for: no result in the wheel is of a cache or an executor")
    builders = rebuild.count_builders(wheel, policy, accepted)
    if builders.facts["builds"] >= 2:
        return _accept("second-builder", builders.evidence)
    return _refuse(
        "second-builder",
        f"the policy asks for a second builder of this wheel: {builders.evidence}",
        f"`toolkit reproduce {wheel.folder} --sign KEY` by another key that may sign a `rebuild`",
    )


def _check_advisories(tensorflow: str, least: Severity) -> Finding:
    order = get_args(Severity)
    # An advisory whose severity is not known may be of any.
    advisories = [
        f"{item.id} ({item.severity or 'severity not known'}, {describe_fix(item)})"
        for item in list_advisories(tensorflow)
        if not item.severity or order.index(item.severity) >= order.index(least)
    ]
    noun = "advisories" if least == "any" else f"advisories of severity {least} or above"
    if not advisories:
        return _accept("no-advisories", f"the version table has no {noun} for TensorFlow {tensorflow}")
    return _refuse(
        "no-advisories",
        f"TensorFlow {tensorflow} has {', '.join(advisories)}, and the policy allows no {noun}",
        "take a version that has none: `toolkit matrix` lists them",
    )


def list_advisories(tensorflow: str) -> tuple[Advisory, ...]:
    """Return the published advisories of a version, also of one with a local part, as a graft has.

    Raises IntegrityError if the version table does not know the version, because nothing can be said of it then.
    """
    table = load_table()
    try:
        version = Version(tensorflow).public
    except InvalidVersion:
        version = tensorflow
    if version not in table.tensorflow_rows and version not in table.incomplete:
        raise IntegrityError(
            f"the version table does not know TensorFlow {tensorflow}, so its advisories are not known",
            remedy="`toolkit matrix --refresh` looks for new versions and advisories",
        )
    return table.list_advisories(version)
