"""Compares an image with its record: one of Docker, or one that is a file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from toolkit.base import digest, manifest, naming, ownership, signing
from toolkit.base.errors import EngineError, IntegrityError
from toolkit.base.findings import Finding, absent, check
from toolkit.base.manifest import Manifest
from toolkit.base.signing import Statement
from toolkit.engine import custody
from toolkit.engine.packed import find_packer, names_packed
from toolkit.records import origins
from toolkit.records.artifact import Artifact, Link
from toolkit.wheel import wheel_documents

if TYPE_CHECKING:
    from toolkit.engine.client import InspectedImage


def inspect(reference: str) -> "InspectedImage | None":
    """Return what the engine knows of an image, or None if it has no such image. Raises EngineError."""
    from toolkit.engine import client  # is slow to load

    return client.inspect(reference)


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """What a state folder says of an image that it made or reused in a Docker engine."""

    tag: str
    id: str  # the engine's digest of the image
    folder: Path  # where the record lies


@dataclass(frozen=True, kw_only=True)
class Image(Artifact):
    """An image, given by the folder of its record, or by its name or id."""

    kind = "image"
    noun = "image"
    title = "Image"
    meaning = "What was run."
    digest_of = "image id"
    cleaned = "image"
    holds = "image"
    remedy = "`toolkit build-image` makes it again"

    @classmethod
    def find_by_name(cls, name: str, state: Path) -> Self | None:
        return cls(folder=Path(), state=state, reference=name) if ":" in name or "@" in name else None

    @classmethod
    def find_named_folder(cls, named: Mapping[str, Any], state: Path) -> Path | None:
        packed = names_packed(str(named.get("reference")))
        return _find_folder(str(named.get("digest")), state, packed=packed)

    @property
    def name(self) -> str:
        return self.reference or super().name

    def describe_place(self) -> dict[str, str]:
        return {"image": self.reference} if self.reference else super().describe_place()

    def find_record(self) -> Path | None:
        """Return the folder of its record, or None if it has none here. Raises EngineError if no engine answers."""
        if not self.reference:
            return self.folder
        image = inspect(self.reference)
        return _find_folder(image.id, self.state) if image else None

    def locate(self) -> Path:
        folder = self.find_record()
        if folder is None:
            raise IntegrityError(
                f"no record in {self.state} is of the image {self.reference}",
                remedy="`toolkit build-image` builds one with its record, which can be signed",
            )
        return folder

    def make_statement(self) -> Statement:
        folder = self.locate()
        record = origins.read_record(folder, "image")
        tag = str(record.facts.get("tag"))
        parameters = {"tag": tag, "plan": record.facts.get("plan")}
        return Statement(
            kind="image",
            subjects={tag: record.digest, **digest.read_files(folder, [manifest.FILE])},
            predicate_type=wheel_documents.PREDICATE,
            predicate=origins.describe_making("build-image", parameters, record.parent),
        )

    def find_tensorflow(self) -> str:
        return origins.find_tensorflow(self.locate())

    def list_parents(self) -> list[Link]:
        try:
            folder = self.find_record()
            record = manifest.read(folder) if folder else None
            parent = record.parent if record else _read_lock_label(self.reference)
        except EngineError:
            return []  # `check` says so
        return origins.list_links(parent)

    def check_parent(self, parent: Link) -> list[Finding]:
        return origins.check_link(parent)

    def has_read_parents(self, findings: Sequence[Finding]) -> bool:
        return any(item.id in {"labels", "file"} and item.state != "absent" for item in findings)

    def check(self) -> list[Finding]:
        """Compare it with its record.

        Raises EngineError if no engine answers, and IntegrityError if there is no such image or its record is damaged.
        """
        return self._check_by_name() if self.reference else self._check_record()

    def _check_by_name(self) -> list[Finding]:
        image = inspect(self.reference)
        if image is None:
            raise IntegrityError(
                f"there is no image {self.reference!r} on this machine", remedy="`toolkit build-image` makes one"
            )
        folder = _find_folder(image.id, self.state)
        record = manifest.read(folder) if folder else None
        if record is None or record.kind != "image":
            why = "it was not built here, or the record was removed"
            return [
                check("id", True, image.id),
                replace(
                    absent("manifest", f"no record in {self.state} is of this image, so no signature: {why}"),
                    remedy="verify it where it was built, or fetch its record, a folder of `.toolkit` there, too",
                ),
                _check_own_label(image),
            ]
        _require_facts(record, folder)
        return _compare_image(image, record)

    def _check_record(self) -> list[Finding]:
        record = manifest.read(self.folder)
        if record is None or record.kind != "image":
            raise IntegrityError(f"{self.folder} has no manifest of an image", remedy="`toolkit build-image` makes one")
        _require_facts(record, self.folder)
        if packer := find_packer(record):
            return _check_file(self.folder / packer.file, record)
        image = inspect(record.digest)
        if image:
            return _compare_image(image, record)
        tag = record.facts["tag"]
        other = inspect(tag)
        if other:
            return [check("id", False, f"{tag} is {other.id}, and the record is of {record.digest}")]
        return [absent("id", f"the engine has no image {record.digest}, by the name of {tag}")]


def list_docker_records(state: Path) -> list[ImageRecord]:
    """Return what a state folder says of the images that it made in a Docker engine.

    Only what this user has recorded counts, because `toolkit clean` removes these images.
    """
    try:
        folders = sorted(path for path in state.iterdir() if path.name.startswith("image-") and path.is_dir())
    except OSError:
        return []
    return [record for folder in folders for record in _read_docker_records(folder)]


def _read_docker_records(folder: Path) -> Iterator[ImageRecord]:
    if named := ownership.read_image(folder):
        yield ImageRecord(tag=named[0], id=named[1], folder=folder)
    match manifest.read(folder):
        case Manifest(kind="image", digest=identity, facts={"tag": str(tag), **facts}) if facts.get(
            "engine", "docker"
        ) == "docker" and custody.holds(folder, identity):
            yield ImageRecord(tag=tag, id=identity, folder=folder)


def _find_folder(identity: str, state: Path, *, packed: bool = False) -> Path | None:
    """Return the folder of the record of an image: one that is a file if it is ``packed``, else one of Docker.

    If there is none, return the folder whose envelope names the image, so that a forged manifest does not hide what was
    signed.
    """
    signed_folder = None
    for folder in sorted(state.glob("image-*")):
        record = manifest.read(folder)
        if record and record.kind == "image" and record.digest == identity:
            if bool(find_packer(record)) == packed:
                return folder
        elif signed_folder is None and signing.names(folder, identity):
            signed_folder = folder
    return signed_folder


def _require_facts(record: Manifest, folder: Path | None) -> None:
    docker = {"labels": dict, "plan": str, "tag": str, "base": dict}
    names = {"labels": dict, "file": str} if find_packer(record) else docker
    lacking = [name for name, kind in names.items() if not isinstance(record.facts.get(name), kind)]
    if lacking:
        raise IntegrityError(
            f"the manifest of {folder} lacks {', '.join(lacking)}", remedy="`toolkit build-image` makes the image again"
        )


def _check_file(path: Path, record: Manifest) -> list[Finding]:
    if not path.is_file():
        return [absent("file", f"there is no {path}; the image is {record.digest}")]
    promised = record.facts["file"]
    try:
        value = digest.read_file(path)
    except OSError as error:
        return [check("file", False, f"{path} cannot be read: {error.strerror}")]
    text = value if value == promised else f"{path} has {value}, and its record says {promised}"
    return [check("file", value == promised, text)]


def _compare_image(image: "InspectedImage", record: Manifest) -> list[Finding]:
    recorded = dict(record.facts["labels"])
    changed = sorted(name for name in {*recorded, *image.labels} if recorded.get(name) != image.labels.get(name))
    plan = image.labels.get(naming.PLAN_LABEL)
    parent = record.parent or {}
    named = image.labels.get(naming.WHEEL_LABEL if parent.get("kind") == "wheel" else naming.LOCK_LABEL)
    return [
        check(
            "id",
            image.id == record.digest,
            image.id if image.id == record.digest else f"{image.id}, and the record is of {record.digest}",
        ),
        check("labels", not changed, f"changed: {', '.join(changed)}" if changed else f"{len(recorded)}, as recorded"),
        check("plan", plan == record.facts["plan"], str(plan)),
        check(
            "parent",
            named == parent.get("digest"),
            f"{parent.get('kind')} {named}"
            if named == parent.get("digest")
            else f"the manifest names the {parent.get('kind')} {parent.get('digest')}, the image's label {named}",
        ),
        _check_base(image, record),
    ]


def _check_base(image: "InspectedImage", record: Manifest) -> Finding:
    base = record.facts["base"]
    try:
        # The digest is an image id or a registry's digest.
        known = inspect(base["digest"]) or inspect(f"{_strip_tag(base['name'])}@{base['digest']}")
    except EngineError:
        known = None
    if known is None:
        return absent("base", f"{base['name']} {base['digest']}")
    is_below = bool(known.layers) and image.layers[: len(known.layers)] == known.layers
    return check("base", is_below, f"{base['name']}, {len(known.layers)} of {len(image.layers)} layers")


def _strip_tag(reference: str) -> str:
    name = reference.partition("@")[0]
    repository, _, tag = name.rpartition(":")
    return repository if repository and "/" not in tag else name


def _check_own_label(image: "InspectedImage") -> Finding:
    owned = image.labels.get(naming.OWNER_LABEL) == "toolkit"
    return check("labels", owned, "built by the toolkit, as it says" if owned else "not an image of the toolkit")


def _read_lock_label(reference: str) -> Mapping[str, Any] | None:
    """Return the locked set that an image itself names, as a record would. Raises EngineError if no engine answers."""
    image = inspect(reference) if reference else None
    value = image.labels.get(naming.LOCK_LABEL) if image else None
    return {"kind": "lock", "name": "its label", "digest": value} if value else None
