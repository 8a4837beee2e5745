"""How a wheel came to be, as an in-toto statement with SLSA's provenance, version 1.

https://slsa.dev/spec/v1.0/provenance and https://github.com/in-toto/attestation: builders and registries read it, so a
wheel that leaves this machine can say what it was made of. It is unsigned: it records what was done, and proves no
author. The in-toto-attestation package would bring protobuf to write this one dictionary.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from toolkit import __version__
from toolkit.lock import REPOSITORY
from toolkit.wheel.plan import IMAGE_SCHEME, WheelPlan

FILE = "provenance.intoto.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:x-tensorflow-toolkit:build-wheel:v1"
BUILDER = "urn:x-tensorflow-toolkit:builder:docker-buildx"
"""To trust the result is to trust this program, the engine that ran it and the machine below."""

TREE = "toolkit-tree-sha256"
"""Our own digest of a folder (:func:`toolkit.digest.digest_paths`): ``sha256`` would promise that of one file."""

_EXTERNAL = {
    "bazelArguments": "BAZEL_ARGUMENTS",
    "aptSnapshot": "APT_SNAPSHOT",
    "remoteCache": "REMOTE_CACHE",
    "remoteExecutor": "REMOTE_EXECUTOR",
    "remoteInstanceName": "REMOTE_INSTANCE_NAME",
}
"""What else the user decides, and may change the result: the specification wants these parameters to be complete."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program as it ran: the version that it prints, and the hex digest of its file."""

    version: str
    sha256: str


def describe(
    plan: WheelPlan,
    subjects: Mapping[str, str],
    *,
    started: float,
    finished: float,
    builder: Mapping[str, str],
    bazel: Program,
) -> dict[str, Any]:
    """Return the statement.

    Args:
        plan: what was built.
        subjects: digest of each file by name; the wheel first.
        started, finished: seconds since 1970.
        builder: the machine; its engine and kernel are recorded.
        bazel: the Bazel that ran, which need not be the pinned one.
    """
    external = {name: plan.arguments[argument] for name, argument in _EXTERNAL.items() if argument in plan.arguments}
    versions = {name: builder[name] for name in ("engine", "kernel") if name in builder}
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": _split(value)} for name, value in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"spec": dict(plan.lock.spec), "origins": plan.origins, **external},
                "internalParameters": {"arguments": plan.arguments, "plan": plan.digest},
                "resolvedDependencies": list(_list_dependencies(plan, bazel)),
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": {"toolkit": __version__, **versions}},
                "metadata": {
                    "invocationId": f"urn:uuid:{uuid.uuid4()}",
                    "startedOn": _stamp(started),
                    "finishedOn": _stamp(finished),
                },
            },
        },
    }


def _list_dependencies(plan: WheelPlan, bazel: Program) -> Iterator[dict[str, Any]]:
    pins, spec = plan.lock.pins, plan.lock.spec
    base = {"name": pins["base-image"], "uri": f"{IMAGE_SCHEME}{pins['base-image']}"}
    yield {**base, "digest": _split(pins["base-digest"])} if pins["base-digest"] else base
    if "source" in plan.origins:
        yield _describe_origin("source", plan)
    else:
        yield {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": pins["tensorflow-commit"]}}
    if "bazel" in plan.origins:
        yield _describe_origin("bazel", plan)
    yield {"name": f"bazel-{bazel.version}", "digest": {"sha256": bazel.sha256}}
    for part in ("cuda", "cudnn"):
        yield {"name": f"redistrib_{spec[part]}.json", "digest": {"sha256": pins[f"{part}-redist-sha256"]}}
    for name, value in pins.items():
        if "/" in name:
            yield {"name": name, "digest": _split(value)}
    yield {"name": "recipe", "digest": _split(pins["recipe"], TREE)}


def _describe_origin(name: str, plan: WheelPlan) -> dict[str, Any]:
    """Return what replaces a pinned source; an image that is known by its name alone has no digest."""
    identity, context = plan.origins[name], plan.contexts[name]
    if identity.startswith(IMAGE_SCHEME):
        return {"name": name, "uri": identity}
    return {"name": name, "digest": _split(identity, "sha256" if "://" in context else TREE)}


def _split(identity: str, sha256: str = "sha256") -> dict[str, str]:
    """Return ``sha256:…`` and ``git:…`` as in-toto writes them."""
    algorithm, _, value = identity.partition(":")
    return {{"git": "gitCommit", "sha256": sha256}[algorithm]: value}


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
