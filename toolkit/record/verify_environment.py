"""Verifies virtual environments against the records of pip and the packages, and images against their records."""

import base64
import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.utils import canonicalize_name

from toolkit import digest, files, manifest, naming, signing
from toolkit.engine import content, host
from toolkit.engine.apptainer import SIF, ApptainerEngine
from toolkit.engine.client import InspectedImage, inspect
from toolkit.engine.content import Tree
from toolkit.errors import EngineError, IntegrityError
from toolkit.findings import Finding, absent, check, prefix
from toolkit.manifest import Manifest
from toolkit.record.verify_wheel import verify_origin
from toolkit.smoke import runner
from train.system.files import read_text


def verify_report(path: Path) -> list[Finding]:
    """Verify a report of smoke checks and its environment or image. Raises CheckError: the report is not valid."""
    findings = [check_report(path)]
    record = manifest.read(path.parent)
    if record is None:
        return [*findings, absent("parent", f"{path.parent} has no manifest of what was checked")]
    found = verify_image_record(path.parent) if record.kind == "image" else verify(path.parent)
    return [*findings, *prefix(record.kind, found)]


def check_report(path: Path) -> Finding:
    """Return whether the checks of a report passed. Raises CheckError: the report is not valid."""
    report = runner.from_json(files.read_json(path))
    return check("report", report.verdict == "pass", report.summary)


CONTENT = "content"
"""Name of the finding about all that an interpreter may read in an environment."""

BROUGHT = frozenset({"pip", "setuptools"})
"""Packages that ``python -m venv`` installs itself."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    version: str
    info: Path


class Recorded(NamedTuple):
    """What the ``RECORD`` of a package says of a file."""

    digest: str
    size: int | None  # bytes; None if it is not recorded


def verify(folder: Path) -> list[Finding]:
    """Verify an environment and its wheel's origin. Raises IntegrityError: it lacks its manifest or pip's report."""
    record = manifest.read(folder)
    report = files.read_json(folder / host.REPORT)
    if record is None or record.kind != "environment" or not isinstance(report, dict):
        raise IntegrityError(
            f"{folder} has no manifest of an environment, with pip's report beside it",
            remedy=f"remove the folder {folder}; the next `toolkit up` or `toolkit train` makes it again",
        )
    parent = record.parent or {}
    packages = read_packages(folder / "venv")
    try:
        promised: dict[str, Any] = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
        versions = {name: str(item["metadata"]["version"]) for name, item in promised.items()}
    except (LookupError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"{folder / host.REPORT} is not a report of pip", remedy=f"remove the folder {folder}"
        ) from error
    name = folder.name.endswith(f"-{digest.shorten(record.digest)}")
    return [
        check("manifest", name, record.digest if name else f"{record.digest} is not that of the folder's name"),
        _check_wheel(parent, promised, packages),
        _check_packages(versions, packages),
        *_check_all_files(folder, record, packages),
        *verify_origin(parent),
    ]


def _check_wheel(parent: Mapping[str, Any], promised: Mapping[str, Any], packages: Mapping[str, Installed]) -> Finding:
    names = sorted(manifest.PUBLISHED & packages.keys())
    seen = {digest_ for name in names for digest_ in _read_digests(promised.get(name), packages[name])}
    return check(
        "wheel",
        parent.get("digest") in seen,
        f"{parent.get('name')} {parent.get('digest')}"
        if parent.get("digest") in seen
        else f"the manifest names {parent.get('digest')}, pip installed {', '.join(sorted(seen)) or 'none'}",
    )


def _read_digests(promised: Any, package: Installed) -> Iterator[str]:
    direct = files.read_json(package.info / "direct_url.json")
    for entry in (promised.get("download_info") if promised else None, direct):
        if isinstance(entry, dict) and (found := host.read_wheel_digest(entry)):
            yield found


def _check_packages(wanted: Mapping[str, str], packages: Mapping[str, Installed]) -> Finding:
    found = {name: item.version for name, item in packages.items()}
    extra = found.keys() - wanted.keys() - BROUGHT - manifest.PUBLISHED
    wrong = [
        f"{name} {found.get(name, 'is missing')}, was {version}"
        for name, version in sorted(wanted.items())
        if found.get(name) != version
    ]
    wrong += [f"{name} was not installed by the toolkit" for name in sorted(extra)]
    return check("packages", not wrong, "; ".join(wrong[:5]) or f"{len(wanted)}, each in the version that pip recorded")


def _check_all_files(folder: Path, record: Manifest, packages: Mapping[str, Installed]) -> Iterator[Finding]:
    recorded, gone = _read_records(folder, packages)
    tree = content.scan(folder)
    listed = content.read(folder, record.facts["files"]) if "files" in record.facts else None
    # What nobody listed is named, and need not be read, which could take for ever.
    wanted = tree.files.keys() & (recorded.keys() | (listed["files"].keys() if listed else set()))
    # What has another size is changed, and need not be read either.
    digests = content.hash_files(tree, [name for name in wanted if _may_be(tree.files[name], recorded.get(name))])
    yield _check_files(recorded, gone, digests)
    yield _check_content(folder, record, listed, tree, digests)


def _may_be(file: os.stat_result, recorded: Recorded | None) -> bool:
    """Return whether a file has the size that its package recorded, if it recorded one."""
    return recorded is None or recorded.size in {None, file.st_size}


def _check_files(recorded: Mapping[str, Recorded], gone: Sequence[str], digests: Mapping[str, str]) -> Finding:
    changed = [*gone, *(name for name, promised in recorded.items() if digests.get(name) != promised.digest)]
    text = f"{len(changed)} of {len(recorded)} are changed or gone: {', '.join(changed[:3])}"
    return check("files", not changed, text if changed else f"{len(recorded)}, each as its package recorded it")


def _check_content(
    folder: Path, record: Manifest, listed: Mapping[str, Any] | None, tree: Tree, digests: Mapping[str, str]
) -> Finding:
    """Return whether the interpreter, and all that it may read there, are those that the manifest's list has."""
    if record.facts.get("files") is None:
        return absent(
            CONTENT,
            "an earlier version made it, and recorded neither its interpreter nor which files there are: what was "
            f"added would not be found. Remove {folder}, and the next command makes it again",
        )
    if listed is None:
        return check(CONTENT, False, f"{content.FILE} is not the list that the manifest names")
    wrong = content.compare(tree, digests, listed)
    same = f"{len(tree.files)} files and the interpreter, as when it was made, and nothing else"
    return check(CONTENT, not wrong, content.summarize(wrong) or same)


def read_packages(venv: Path) -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for info in sorted(venv.glob("lib/python3.*/site-packages/*.dist-info")):
        said = Distribution.at(info).metadata  # parsed anew by each look
        name = str(said["Name"] or info.name.partition("-")[0])
        found[canonicalize_name(name)] = Installed(version=str(said["Version"]), info=info)
    return found


def _read_records(folder: Path, packages: Mapping[str, Installed]) -> tuple[dict[str, Recorded], list[str]]:
    """Return what packages recorded of files, by names below the folder, and the records that cannot be read."""
    recorded: dict[str, Recorded] = {}
    gone = []
    for package in packages.values():
        place = package.info.parent.relative_to(folder)
        try:
            with io.StringIO(read_text(package.info / "RECORD"), newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == 3 and row[1].startswith("sha256=")]
        except (OSError, ValueError, csv.Error):
            gone.append(f"{package.info.name}/RECORD")
            continue
        for name, code, size in rows:
            if not name.endswith(".pyc"):
                count = int(size) if size.isdecimal() else None
                recorded[os.path.normpath(place / name)] = Recorded(_decode(code.removeprefix("sha256=")), count)
    return recorded, gone


def _decode(code: str) -> str:
    """Return a digest that a ``RECORD`` has in URL-safe base64."""
    try:
        return f"sha256:{base64.urlsafe_b64decode(code + '=' * (-len(code) % 4)).hex()}"
    except ValueError:
        return code


def find_image_record(identity: str, state: Path, *, reference: str = "") -> Path | None:
    """Return the folder of the record of an image: of Apptainer's, if the reference is one, else of Docker's.

    Else the one whose envelope names it, so that a forged manifest does not hide what was signed.
    """
    packed, hidden = reference.endswith(f"/{SIF}"), None
    for path in sorted(state.glob("image-*")):
        record = manifest.read(path)
        if record and record.kind == "image" and record.digest == identity:
            if is_packed(record) == packed:
                return path
        elif hidden is None and signing.names(path, identity):
            hidden = path
    return hidden


def is_packed(record: Manifest) -> bool:
    """Return whether an image is Apptainer's, and not Docker's."""
    return bool(record.facts.get("engine") == ApptainerEngine.name)


def locate_image(reference: str, state: Path) -> Path | None:
    """Return the folder of the record of an image, given by name. Raises EngineError: no engine answers."""
    found = inspect(reference)
    return find_image_record(found.id, state) if found else None


def verify_image(reference: str, state: Path) -> list[Finding]:
    """Verify an image by name. Raises EngineError: no engine answers; IntegrityError: it has no image of that name."""
    found = inspect(reference)
    if found is None:
        raise IntegrityError(
            f"there is no image {reference!r} on this machine", remedy="`toolkit build-image` makes one"
        )
    folder = find_image_record(found.id, state)
    record = manifest.read(folder) if folder else None
    if record is None or record.kind != "image":
        return [
            check("id", True, found.id),
            absent(
                "manifest", f"no record in {state} is of this image: it was not built here, or the record was removed"
            ),
            *_check_own_labels(found),
        ]
    _require_facts(record, folder)
    return _compare_image(found, record)


def _require_facts(record: Manifest, folder: Path | None) -> None:
    names = (
        {"labels": dict, "sif": str} if is_packed(record) else {"labels": dict, "plan": str, "tag": str, "base": dict}
    )
    lacking = [name for name, kind in names.items() if not isinstance(record.facts.get(name), kind)]
    if lacking:
        raise IntegrityError(
            f"the manifest of {folder} lacks {', '.join(lacking)}", remedy="`toolkit build-image` makes the image again"
        )


def verify_image_record(folder: Path) -> list[Finding]:
    """Verify a record's image. Raises IntegrityError: it is no image's manifest; EngineError: no engine answers."""
    record = manifest.read(folder)
    if record is None or record.kind != "image":
        raise IntegrityError(f"{folder} has no manifest of an image", remedy="`toolkit build-image` makes one")
    _require_facts(record, folder)
    if is_packed(record):
        return _verify_sif(folder / SIF, record)
    found = inspect(record.digest)
    if found:
        return _compare_image(found, record)
    tag = record.facts["tag"]
    other = inspect(tag)
    if other:
        return [check("id", False, f"{tag} is {other.id}, and the record is of {record.digest}")]
    return [absent("id", f"the engine has no image {record.digest}, by the name of {tag}")]


def _verify_sif(path: Path, record: Manifest) -> list[Finding]:
    if not path.is_file():
        return [absent("sif", f"there is no {path}; the image is {record.digest}")]
    promised = record.facts["sif"]
    try:
        found = digest.read_file(path)
    except OSError as error:
        return [check("sif", False, f"{path} cannot be read: {error.strerror}")]
    text = found if found == promised else f"{path} has {found}, and its record says {promised}"
    return [check("sif", found == promised, text), *verify_origin(record.parent or {})]


def _compare_image(found: InspectedImage, record: Manifest) -> list[Finding]:
    recorded = dict(record.facts["labels"])
    changed = sorted(name for name in {*recorded, *found.labels} if recorded.get(name) != found.labels.get(name))
    plan = found.labels.get(naming.PLAN_LABEL)
    parent = record.parent or {}
    named = found.labels.get(naming.WHEEL_LABEL if parent.get("kind") == "wheel" else naming.LOCK_LABEL)
    return [
        check(
            "id",
            found.id == record.digest,
            found.id if found.id == record.digest else f"{found.id}, and the record is of {record.digest}",
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
        _check_base(found, record),
        *verify_origin(parent),
    ]


def _check_base(found: InspectedImage, record: Manifest) -> Finding:
    base = record.facts["base"]
    try:
        # The digest is an image id or a registry's digest.
        known = inspect(base["digest"]) or inspect(f"{_strip_tag(base['name'])}@{base['digest']}")
    except EngineError:
        known = None
    if known is None:
        return absent("base", f"{base['name']} {base['digest']}")
    stands = bool(known.layers) and found.layers[: len(known.layers)] == known.layers
    return check("base", stands, f"{base['name']}, {len(known.layers)} of {len(found.layers)} layers")


def _strip_tag(reference: str) -> str:
    name = reference.partition("@")[0]
    repository, _, tag = name.rpartition(":")
    return repository if repository and "/" not in tag else name


def _check_own_labels(found: InspectedImage) -> Iterator[Finding]:
    owned = found.labels.get(naming.OWNER_LABEL) == "toolkit"
    yield check("labels", owned, "built by the toolkit, as it says" if owned else "not an image of the toolkit")
    if found.labels.get(naming.LOCK_LABEL):
        yield from verify_origin({"kind": "lock", "name": "its label", "digest": found.labels[naming.LOCK_LABEL]})
