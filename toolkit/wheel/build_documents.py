"""Says what is in the documents of a wheel that was built from source: its inputs, and the tools that built it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cyclonedx.model import ExternalReference, ExternalReferenceType, Property, XsUri
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from packageurl import PackageURL

from toolkit.base import naming
from toolkit.versions.lock import REDIST, REPOSITORY
from toolkit.versions.set import LIBRARIES
from toolkit.wheel import wheel_documents
from toolkit.wheel.build_inputs import IMAGE_SCHEME
from toolkit.wheel.build_options import list_options
from toolkit.wheel.build_plan import BuildPlan
from toolkit.wheel.wheel_documents import TREE, BuildRun, describe_package, describe_tool, make_hash, split

if TYPE_CHECKING:
    from toolkit.wheel.inspection import Inspection

BUILDER: Final = "urn:x-tensorflow-toolkit:builder:docker-buildx"
"""This program, the container engine and the machine: a user of the result trusts all three."""

_PROPERTIES: Final = ("python", *LIBRARIES, "capabilities")


@dataclass(frozen=True, kw_only=True)
class Program:
    version: str
    sha256: str


def describe_provenance(plan: BuildPlan, subjects: Mapping[str, str], ran: BuildRun, bazel: Program) -> dict[str, Any]:
    """Return the provenance of files. ``bazel``: the one that ran, which need not be pinned.

    ``subjects`` has the digest of each file by name, the wheel first.
    """
    # SLSA requires the external parameters to be complete.
    chosen = {
        option.recorded: plan.arguments[option.argument]
        for option in list_options().values()
        if option.recorded and option.argument in plan.arguments
    }
    return wheel_documents.describe_provenance(
        plan,
        subjects,
        ran,
        builder=BUILDER,
        external={"origins": plan.origins, **chosen, **({"exact": True} if plan.exact else {})},
        internal={"arguments": plan.arguments},
        dependencies=_list_dependencies(plan, bazel),
    )


def _list_dependencies(plan: BuildPlan, bazel: Program) -> Iterator[dict[str, Any]]:
    pins, spec = plan.lock.pins, plan.lock.spec
    base = {"name": pins["base-image"], "uri": f"{IMAGE_SCHEME}{pins['base-image']}"}
    yield {**base, "digest": split(pins["base-digest"])} if pins["base-digest"] else base
    if "source" in plan.origins:
        yield _describe_origin("source", plan)
    else:
        yield {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": pins["tensorflow-commit"]}}
    if "bazel" in plan.origins:
        yield _describe_origin("bazel", plan)
    yield {"name": f"bazel-{bazel.version}", "digest": {"sha256": bazel.sha256}}
    for part in plan.lock.versions.libraries.named():
        yield {"name": f"redistrib_{spec[part]}.json", "digest": {"sha256": pins[f"{part}{REDIST}"]}}
    for name, value in pins.items():
        if "/" in name:
            yield {"name": name, "digest": split(value)}
    yield {"name": "recipe", "digest": split(pins["recipe"], TREE)}


def _describe_origin(name: str, plan: BuildPlan) -> dict[str, Any]:
    identity, context = plan.origins[name], plan.contexts[name]
    if identity.startswith(IMAGE_SCHEME):
        return {"name": name, "uri": identity}
    return {"name": name, "digest": split(identity, "sha256" if "://" in context else TREE)}


def write_bill(plan: BuildPlan, wheel: "Inspection", *, bazel: Program, packages: Iterable[str]) -> str:
    """Return the bill of materials as JSON. ``packages``: Debian packages of the build image, ``name=version``."""
    subject = describe_package(
        wheel.name,
        wheel.version,
        hashes=[wheel.digest],
        bom_ref="wheel",
        properties=[Property(name=f"{naming.LABEL_PREFIX}.{name}", value=value) for name, value in _describe(plan)],
        external_references=_find_source(plan),
    )
    tools = [*_list_tools(plan, bazel), *(_read_package(line) for line in packages)]
    seconds = int(plan.lock.pins["source-date-epoch"])
    return wheel_documents.write_bill(plan, subject, wheel.digest, tools, seconds=seconds)


def _describe(plan: BuildPlan) -> Iterable[tuple[str, str]]:
    yield from ((name, plan.lock.spec[name]) for name in _PROPERTIES if name in plan.lock.spec)
    if "source" in plan.origins:
        yield "source", plan.origins["source"]


def _find_source(plan: BuildPlan) -> list[ExternalReference]:
    if "source" in plan.origins:
        return []
    address = XsUri(f"git+{REPOSITORY}@{plan.lock.pins['tensorflow-commit']}")
    return [ExternalReference(type=ExternalReferenceType.VCS, url=address)]


def _list_tools(plan: BuildPlan, bazel: Program) -> Iterable[Component]:
    yield describe_tool("bazel", bazel.version, hashes=[bazel.sha256])
    for name, value in plan.lock.pins.items():
        if name.endswith(".patch"):
            hashes = [make_hash(value)]
            yield Component(
                name=name, type=ComponentType.FILE, bom_ref=name, hashes=hashes, scope=ComponentScope.EXCLUDED
            )


def _read_package(line: str) -> Component:
    name, _, version = line.strip().partition("=")
    return describe_tool(name, version, purl=PackageURL("deb", namespace="debian", name=name, version=version))
