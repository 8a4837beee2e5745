"""Pushes the folder of a wheel to a registry, and pulls it by the digest of its plan.

The signature is checked before the wheel is fetched, because it names the digest of every file.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from toolkit.base import digest, files, findings, seals, signing
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, IntegrityError, RegistryError
from toolkit.base.manifest import Manifest
from toolkit.base.signing import ENVELOPE, Policy, Statement
from toolkit.engine.oci_manifest import EMPTY, MANIFEST, Layer, compose_manifest
from toolkit.engine.registry import Client, Repository
from toolkit.records import open_wheel, verification
from toolkit.records.wheel import read_predicate
from toolkit.wheel import publication, wheel_documents, wheel_folder
from toolkit.wheel.wheel_folder import FinishedWheel
from toolkit.wheel.wheel_plan import WheelPlan

KIND: Final = "application/vnd.tensorflow-toolkit.wheel.v1"
"""The type of the artifact."""

_MEDIA_TYPES: Final = {
    ".whl": "application/zip",
    ".cdx.json": "application/vnd.cyclonedx+json",
    ".intoto.json": signing.PAYLOAD,
    ".dsse.json": "application/vnd.dsse.envelope.v1+json",
    ".json": "application/json",
    "": "text/plain",
}
"""By the end of a file's name; the first that fits."""


def name_tag(plan: str) -> str:
    return f"plan-{plan.removeprefix('sha256:')}"


def push(folder: Path, repository: Repository, *, ca_bundle: str, replace: bool, console: Console) -> str:
    """Check a wheel's folder and push it; return its reference.

    A signed folder must be what was signed, whoever signed it. One without a signature must match its record.

    ``replace``: push also if the registry has another wheel of this plan. Raises CheckError if it has, or if the wheel
    does not match its record; IntegrityError if the folder has changed since it was made or signed; and RegistryError
    if the registry does not answer.
    """
    digests = wheel_folder.check_sums(folder)
    wheel = open_wheel(folder)
    tag = name_tag(wheel.read_plan().digest)
    signed = signing.locate(folder).exists()
    how = "against its signature; only `toolkit verify` reads its code" if signed else "by its record: nobody signed it"
    with console.timed("verify", f"{folder.name} {how}"):
        if signed:
            signing.require_unchanged(folder, wheel.make_statement())
        else:
            findings.require(wheel.check(), remedy=wheel.remedy)
    paths = wheel_folder.list_files(folder)
    layers = [
        Layer(title=path.name, digest=digests.get(path.name) or digest.read_file(path), size=path.stat().st_size)
        for path in paths
    ]
    client = Client(repository, ca_bundle)
    before = None if replace else client.find(tag, KIND)
    if before is not None and _list_subjects(before) != _list_subjects(layers):
        raise CheckError(
            f"{repository} has another wheel of this plan",
            why=f"the files of {tag} differ from those here",
            remedy="pull and compare it, or replace it: --replace",
        )
    # Signatures of others are kept: the registry has the files that they are about.
    others = [layer for layer in before or () if layer.title not in {path.name for path in paths}]
    with console.timed("push", f"{sum(layer.size for layer in layers) / 1e6:.1f} MB to {repository}"):
        for layer, path in zip(layers, paths, strict=True):
            client.upload(layer.digest, path)
        layers = sorted([*layers, *others], key=lambda layer: layer.title)
        manifest = compose_manifest(KIND, layers, [_find_type(layer.title) for layer in layers])
        client.upload(digest.digest_bytes(EMPTY), EMPTY)
        client.publish(tag, MANIFEST, manifest)
        if client.find(tag, KIND) != layers:
            raise RegistryError(
                f"{repository} has not kept what was pushed",
                why=f"it has other files under {tag}, or none",
                remedy="run the same command again; if another one pushed meanwhile, pull and compare",
            )
    return f"{repository}:{tag}"


def pull(
    repository: Repository,
    plan: WheelPlan,
    *,
    dist: Path,
    state: Path,
    policy: Policy,
    find: Callable[[], FinishedWheel | None],
    ca_bundle: str,
    console: Console,
) -> FinishedWheel | None:
    """Put the wheel of a plan into ``dist`` and return it; None if the registry has none.

    ``find``: returns the wheel if it is in ``dist`` already, as :meth:`toolkit.records.obtaining.WheelSource.find`.

    An empty policy takes a wheel without a signature, and verifies it. Raises IntegrityError if a signature or a digest
    does not hold, or if the wheel is of another plan; CheckError if a wheel without a signature does not hold; and
    RegistryError. ``dist`` is then unchanged, and what has come of the wheel waits in ``state`` for the next command.
    """
    client, tag = Client(repository, ca_bundle), name_tag(plan.digest)
    layers = client.find(tag, KIND)
    if layers is None:
        return None
    archive, _ = _sort(layers)
    kept = state / f"wheel-{plan.name}"
    files.require_writable(dist)
    files.require_writable(kept)
    seals.make_key()  # before minutes are spent
    with files.open_own(kept / "pull.lock") as lock, files.stage(dist, plan.name) as staging:
        files.lock_file(lock, fcntl.LOCK_EX)
        if wheel := find():  # another command has put it there meanwhile
            return wheel
        wheel_folder.require_free(dist / plan.name)
        signed = _fetch_records(client, plan, layers, staging.path, policy)
        record = _require_plan(staging.path, plan, archive, repository)
        console.heading("registry", f"{repository}:{tag}, {signed}")
        part = kept / f"{digest.shorten(archive.digest)}.part"
        with console.timed("pull", f"{archive.title}, {archive.size / 1e6:.1f} MB"):
            client.download(archive, part)
        with files.writing(dist):
            shutil.move(part, staging.path / archive.title)
        if policy:
            verification.require_trusted(staging.path, "", state=state, policy=policy)
        else:
            findings.require(
                open_wheel(staging.path).check(),
                remedy="tell whoever pushed it; without --from it is made here",
            )
        publication.move(staging.path, dist / plan.name)
    return FinishedWheel(folder=dist / plan.name, record=record, reused=True, pulled=True)


def _sort(layers: Sequence[Layer]) -> tuple[Layer, list[Layer]]:
    """Return the wheel and the other files.

    Raises IntegrityError unless there is one wheel, or if its envelope is not one or is too large.
    """
    envelopes = [layer.size for layer in layers if layer.title == ENVELOPE]
    if len(envelopes) > 1 or max(envelopes, default=0) > signing.LARGEST:
        raise IntegrityError(
            f"the artifact in the registry has more than one envelope, or one above {signing.LARGEST >> 20} MiB",
            remedy="tell whoever pushed it; without --from it is made here",
        )
    wheel, *records = sorted(layers, key=lambda layer: not layer.title.endswith(".whl"))
    if not wheel.title.endswith(".whl") or not records or records[0].title.endswith(".whl"):
        raise IntegrityError("the artifact in the registry is not one wheel and its records")
    return wheel, records


def _fetch_records(client: Client, plan: WheelPlan, layers: Sequence[Layer], folder: Path, policy: Policy) -> str:
    """Fetch all files but the wheel, and say who signed. Nothing is read before its signature is checked."""
    _, records = _sort(layers)
    envelopes = [layer for layer in records if layer.title == ENVELOPE]
    for layer in envelopes:
        client.download(layer, folder / ENVELOPE)
    signed = _require_signature(plan, folder, layers, policy) if policy else "taken without a signature"
    for layer in records:
        if layer not in envelopes:
            client.download(layer, folder / layer.title)
    if policy:
        _require_signature(plan, folder, layers, policy, read_predicate(folder))
    return signed


def _require_signature(
    plan: WheelPlan, folder: Path, layers: Sequence[Layer], policy: Policy, predicate: Mapping[str, Any] | None = None
) -> str:
    """Say who signed these files, and the predicate if one is given. Raises IntegrityError if no signature holds."""
    statement = Statement(
        kind="wheel",
        subjects=_list_subjects(layers),
        predicate_type=wheel_documents.PREDICATE,
        predicate=predicate or {"buildDefinition": {"buildType": plan.BUILD_TYPE}},
    )
    signature = signing.verify(folder, statement, policy, whole=predicate is not None)
    if signature.state != "ok":
        raise IntegrityError(
            "the wheel in the registry is not signed as --trust asks",
            why=signature.evidence if (folder / ENVELOPE).exists() else "it has no signature",
            remedy="ask whoever pushed it; without --from it is made here",
        )
    return signature.evidence


def _require_plan(folder: Path, plan: WheelPlan, archive: Layer, repository: Repository) -> Manifest:
    record = open_wheel(folder).read_record()
    named = (record.facts.get("plan"), record.facts.get("lock"), record.digest)
    if named != (plan.digest, plan.lock.describe(), archive.digest):
        raise IntegrityError(
            f"{repository} has another wheel than this plan's",
            why=f"its manifest names the plan {named[0]} and the wheel {named[2]}; {plan.digest} was asked for, and "
            f"{archive.digest} is there",
            remedy="tell whoever pushed it; without --from it is made here",
        )
    return record


def _list_subjects(layers: Iterable[Layer]) -> dict[str, str]:
    return {layer.title: layer.digest for layer in layers if layer.title != ENVELOPE}


def _find_type(name: str) -> str:
    return next(kind for end, kind in _MEDIA_TYPES.items() if name.endswith(end))
