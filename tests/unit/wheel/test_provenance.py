import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.makers.provenance import COMMIT, FOLDER, IMAGE, LOCK, RAN
from toolkit.wheel import build_documents, wheel_documents
from toolkit.wheel.build_inputs import BuildContext, BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import BuildPlan, plan
from toolkit.wheel.wheel_documents import BuildRun

WHEEL = "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
HOST = {"engine": "docker 26.1.5", "kernel": "6.1", "cores": "2", "memory_bytes": "1"}
NAMED = BuildContext(location="docker-image://bazel:7", identity="docker-image://bazel:7")
LENGTHS = {"sha256": 64, "gitCommit": 40, wheel_documents.TREE: 64}


def describe(built: BuildPlan) -> dict[str, Any]:
    return build_documents.describe_provenance(
        built,
        {WHEEL: "sha256:" + "0" * 64},
        BuildRun(started=1_741_132_800, finished=1_741_136_400, host=HOST, command=()),
        RAN,
    )


def find_faults(statement: dict[str, Any]) -> Iterator[str]:
    if statement["_type"] != "https://in-toto.io/Statement/v1":
        yield "_type"
    if statement["predicateType"] != "https://slsa.dev/provenance/v1":
        yield "predicateType"
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    for name, uri in (("buildType", definition["buildType"]), ("builder.id", details["builder"]["id"])):
        if not re.fullmatch(r"[a-z][a-z0-9+.-]*:\S+", uri):
            yield name
    for item in statement["subject"]:
        if not item.get("name") or not item.get("digest"):
            yield "subject"
    for item in [*statement["subject"], *definition["resolvedDependencies"]]:
        yield from find_descriptor_faults(item)
    version = details["builder"]["version"]
    if not all(isinstance(value, str) for pair in version.items() for value in pair):
        yield "builder.version"
    for name in ("startedOn", "finishedOn"):
        if datetime.fromisoformat(details["metadata"][name]).tzinfo is None:
            yield name


def find_descriptor_faults(item: dict[str, Any]) -> Iterator[str]:
    if not item.keys() & {"uri", "digest", "content"}:
        yield f"descriptor {item}"
    if "uri" in item and "://" not in item["uri"]:
        yield f"uri of {item}"
    for algorithm, value in item.get("digest", {}).items():
        if not re.fullmatch(f"[0-9a-f]{{{LENGTHS.get(algorithm, 0)}}}", value):
            yield f"digest of {item}"


@pytest.mark.parametrize("source", [None, FOLDER, COMMIT])
@pytest.mark.parametrize("bazel", [None, FOLDER, IMAGE, NAMED])
def test_every_origin_makes_a_whole_statement(source: BuildContext | None, bazel: BuildContext | None) -> None:
    assert list(find_faults(describe(plan(LOCK, BuildOptions(), BuildInputs(source=source, bazel=bazel))))) == []


def list_dependencies(built: BuildPlan) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = describe(built)["predicate"]["buildDefinition"]["resolvedDependencies"]
    return found


def test_each_pin_of_the_lock_is_a_dependency_with_its_digest() -> None:
    held = {value for item in list_dependencies(plan(LOCK, BuildOptions())) for value in item["digest"].values()}
    digests = {value for name, value in LOCK.pins.items() if re.search("digest|commit|recipe|redist|/", name)}
    assert {value.removeprefix("sha256:") for value in digests} <= held


@pytest.mark.parametrize("bazel", [None, FOLDER, IMAGE, NAMED])
def test_the_bazel_that_ran_is_named_and_not_the_one_that_was_pinned(bazel: BuildContext | None) -> None:
    dependencies = list_dependencies(plan(LOCK, BuildOptions(), BuildInputs(bazel=bazel)))
    assert {"name": "bazel-7.7.1", "digest": {"sha256": "5" * 64}} in dependencies
    assert LOCK.pins["bazel-sha256"] not in str(dependencies)
    assert f"bazel-{LOCK.spec['bazel']}" not in str(dependencies)
