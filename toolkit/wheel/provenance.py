"""How a wheel came to be, as an in-toto statement with SLSA's provenance, version 1.

https://slsa.dev/spec/v1.0/provenance and https://github.com/in-toto/attestation: builders and registries read it, so a
wheel that leaves this machine can say what it was made of. It is unsigned: it says what was done, not who vouches.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toolkit.lock import REPOSITORY
from toolkit.wheel.plan import WheelPlan

FILE = "provenance.intoto.json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:x-tensorflow-toolkit:build-wheel:v1"


def describe(
    plan: WheelPlan, subjects: Mapping[str, str], *, started: float, finished: float, builder: Mapping[str, str]
) -> dict[str, Any]:
    """The statement.

    Args:
        plan: what was built.
        subjects: digest of each file by name; the wheel first.
        started, finished: seconds since 1970.
        builder: versions of what ran the build, such as the engine.
    """
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": _split(value)} for name, value in subjects.items()],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"spec": dict(plan.lock.spec), "origins": plan.origins},
                "internalParameters": {"arguments": plan.arguments, "plan": plan.digest},
                "resolvedDependencies": list(_list_dependencies(plan)),
            },
            "runDetails": {
                "builder": {"id": BUILD_TYPE, "version": dict(builder)},
                "metadata": {
                    "invocationId": plan.digest,
                    "startedOn": _stamp(started),
                    "finishedOn": _stamp(finished),
                },
            },
        },
    }


def _list_dependencies(plan: WheelPlan) -> list[dict[str, Any]]:
    pins, spec = plan.lock.pins, plan.lock.spec
    found: list[dict[str, Any]] = []
    if pins["base-digest"]:
        found.append({"name": pins["base-image"], "digest": _split(pins["base-digest"])})
    if "source" in plan.origins:
        found.append({"name": "source", "digest": _split(plan.origins["source"])})
    else:
        found.append({"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": pins["tensorflow-commit"]}})
    if "bazel" in plan.origins:
        found.append({"name": "bazel", "digest": _split(plan.origins["bazel"])})
    else:
        found.append({"name": f"bazel-{spec['bazel']}-linux-x86_64", "digest": {"sha256": pins["bazel-sha256"]}})
    found += [
        {"name": f"redistrib_{spec[part]}.json", "digest": {"sha256": pins[f"{part}-redist-sha256"]}}
        for part in ("cuda", "cudnn")
    ]
    found += [{"name": name, "digest": _split(value)} for name, value in pins.items() if "/" in name]
    found.append({"name": "recipe", "digest": _split(pins["recipe"])})
    return found


def _split(identity: str) -> dict[str, str]:
    """``sha256:…`` and ``git:…`` as in-toto writes them; what is neither keeps its own name."""
    algorithm, _, value = identity.partition(":")
    return {{"git": "gitCommit"}.get(algorithm, algorithm): value} if value else {"name": identity}


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
