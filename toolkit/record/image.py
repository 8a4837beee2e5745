"""Verifies an image by its record and by what the engine says of it."""

from collections.abc import Iterator
from pathlib import Path

from toolkit import manifest, naming
from toolkit.engine.client import InspectedImage, inspect
from toolkit.errors import EngineError, IntegrityError
from toolkit.findings import Finding, absent, check
from toolkit.manifest import Manifest
from toolkit.record.wheel import verify_origin

LOCK, WHEEL = f"{naming.LABEL_PREFIX}.lock", f"{naming.LABEL_PREFIX}.wheel"


def find_record(identity: str, state: Path) -> Path | None:
    """Return the folder with the record of an image, if it was built on this machine."""
    for path in sorted(state.glob(f"image-*/{manifest.FILE}")):
        record = manifest.read(path.parent)
        if record and record.kind == "image" and record.digest == identity:
            return path.parent
    return None


def verify_reference(reference: str, state: Path) -> list[Finding]:
    """Verify an image that the engine has.

    Raises:
        EngineError: no engine answers.
        IntegrityError: it has no image of that name.
    """
    found = inspect(reference)
    if found is None:
        raise IntegrityError(
            f"there is no image {reference!r} on this machine", remedy="`toolkit build-image` makes one"
        )
    folder = find_record(found.id, state)
    record = manifest.read(folder) if folder else None
    if record is None:
        return [
            check("id", True, found.id),
            absent(
                "manifest", f"no record in {state} is of this image: it was not built here, or the record was removed"
            ),
            *_check_own_labels(found),
        ]
    return _verify(found, record)


def verify_folder(folder: Path) -> list[Finding]:
    """Verify the image that a record describes.

    Raises:
        IntegrityError: there is no manifest of an image.
        EngineError: no engine answers.
    """
    record = manifest.read(folder)
    if record is None or record.kind != "image":
        raise IntegrityError(f"{folder} has no manifest of an image", remedy="`toolkit build-image` makes one")
    found = inspect(record.digest)
    if found:
        return _verify(found, record)
    tag = record.facts["tag"]
    other = inspect(tag)
    if other:
        return [check("id", False, f"{tag} is {other.id}, and the record is of {record.digest}")]
    return [absent("id", f"the engine has no image {record.digest}, by the name of {tag}")]


def _verify(found: InspectedImage, record: Manifest) -> list[Finding]:
    recorded = dict(record.facts["labels"])
    changed = sorted(name for name in {*recorded, *found.labels} if recorded.get(name) != found.labels.get(name))
    plan = found.labels.get(naming.PLAN_LABEL)
    parent = record.parent or {}
    named = found.labels.get(WHEEL if parent.get("kind") == "wheel" else LOCK)
    return [
        check("id", True, found.id),
        check("labels", not changed, f"changed: {', '.join(changed)}" if changed else f"{len(recorded)}, as recorded"),
        check("plan", plan == record.facts["plan"], str(plan)),
        check(
            "parent",
            named == parent.get("digest"),
            f"{parent.get('kind')} {named}"
            if named == parent.get("digest")
            else f"the manifest names the {parent.get('kind')} {parent.get('digest')}, the image's label {named}",
        ),
        _check_base(found, record),
        *verify_origin(parent),
    ]


def _check_base(found: InspectedImage, record: Manifest) -> Finding:
    """Compare the lowest layers of the image with those of the recorded base."""
    base = record.facts["base"]
    try:
        # An id, or the digest that a registry gave.
        known = inspect(base["digest"]) or inspect(f"{_strip_tag(base['name'])}@{base['digest']}")
    except EngineError:
        known = None
    if known is None:
        return absent("base", f"{base['name']} {base['digest']}")
    stands = bool(known.layers) and found.layers[: len(known.layers)] == known.layers
    return check("base", stands, f"{base['name']}, {len(known.layers)} of {len(found.layers)} layers")


def _strip_tag(reference: str) -> str:
    """Return the repository of a reference. A colon before a slash belongs to a port."""
    name = reference.partition("@")[0]
    repository, _, tag = name.rpartition(":")
    return repository if repository and "/" not in tag else name


def _check_own_labels(found: InspectedImage) -> Iterator[Finding]:
    ours = found.labels.get(naming.OWNER_LABEL) == "toolkit"
    yield check("labels", ours, "built by the toolkit, as it says" if ours else "not an image of the toolkit")
    if found.labels.get(LOCK):
        yield from verify_origin({"kind": "lock", "name": "its label", "digest": found.labels[LOCK]})
