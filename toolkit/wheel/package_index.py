"""Makes a package index of wheels as a folder of files, which any web server can serve, and verifies one.

Its pages are those of the simple repository interface, as HTML (PEP 503) and as JSON (PEP 691), with the METADATA of
entry wheel beside it (PEP 658 and 714). Variants of wheels have their properties in ``NAME-VERSION-variants.json`` (PEP
825, a draft). All follows from the wheels alone, without a time, so that the same sources make the same bytes.
"""

import ctypes
import html
import json
import os
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from packaging.utils import canonicalize_name
from packaging.version import Version

from toolkit import digest, files
from toolkit.errors import IntegrityError, PreflightError, UnsupportedError, UsageError
from toolkit.findings import Finding, check
from toolkit.signing import is_envelope
from toolkit.wheel import variant, wheel_addresses, wheel_documents
from toolkit.wheel.variant import Variant

RECORD: Final = "toolkit-index.json"
"""Name of the record, which lists the digests of all files. A folder without it is no index, and is left alone."""
_SCHEMA: Final = 1
_PAGE, _JSON_PAGE = "index.html", "index.json"
_METADATA: Final = ".metadata"
_DOCUMENTS: Final = (wheel_documents.PROVENANCE, wheel_documents.BILL)
_API: Final = "1.1"
_RENAME_EXCHANGE: Final = 2
_HERE: Final = -100  # AT_FDCWD


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A wheel of an index."""

    path: Path
    digest: str
    size: int
    project: str  # normalized name
    version: str
    metadata: bytes
    variant: Variant | None
    documents: Mapping[str, Path]  # what lies beside it, by the end of its name there
    address: str = ""  # where installers download it; empty: beside the pages

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def place(self) -> str:
        """Its place in the folder of the index."""
        return f"{self.project}/{self.name}"

    @property
    def link(self) -> str:
        """Its address in the pages."""
        return self.address or quote(self.name)

    @property
    def requires_python(self) -> str:
        return HeaderParser().parsestr(self.metadata.decode(errors="replace")).get("Requires-Python", "")


def make(folder: Path, sources: Sequence[Path], addresses: Sequence[str] = ()) -> list[Entry]:
    """Make an index of wheels, or replace one, and return its wheels. The new index has these sources alone.

    ``addresses``: where installers download wheels, as :func:`toolkit.wheel.wheel_addresses.assign` takes it. All is
    written beside the folder and takes its place in one step. Raises UsageError if a source is no wheel, if two
    wheels contradict each other, if a text is no address, or if the folder holds something else; UnsupportedError if
    the folder has an index of another draft of variants; IntegrityError if a wheel has changed since it was recorded;
    and CheckError if a variant names GPU code that it lacks.
    """
    require_own(folder)
    entries = _read_sources(sources)
    assigned = wheel_addresses.assign({entry.name for entry in entries}, addresses)
    entries = [replace(entry, address=assigned.get(entry.name, "")) for entry in entries]
    texts = _compose(entries)
    copied = {entry.place: entry.path for entry in entries}
    for entry in entries:
        copied |= {f"{entry.place}.{end}": path for end, path in entry.documents.items()}
    digests = {name: digest.digest_bytes(content) for name, content in texts.items()}
    digests |= {name: digest.digest_file(path) for name, path in copied.items()}
    record = {"schema": _SCHEMA, "variants": variant.SCHEMA, "files": dict(sorted(digests.items()))}
    if elsewhere := {entry.place: entry.address for entry in entries if entry.address}:
        record["addresses"] = elsewhere
    if _read_record(folder) == record and not _find_wrong(folder, record):
        return entries
    parent = folder.absolute().parent
    files.require_writable(parent)
    with files.stage(parent, digest.shorten(digest.digest_value(str(folder.absolute())))) as staging:
        made = staging.path / "index"
        with files.writing(folder):
            for name, path in copied.items():
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                _copy(path, made / name)
        for name, content in texts.items():
            files.write_atomically(made / name, content)
        files.write_json(made / RECORD, record)
        if wrong := _find_wrong(made, record):
            raise IntegrityError(f"{wrong[0]} while it was copied", remedy="run the same command again")
        files.set_mode(made, 0o755)
        _take_place(made, folder)
    return entries


def verify(folder: Path) -> list[Finding]:
    """Verify an index: each file, each page, and the machine code that each variant names.

    Raises IntegrityError if the folder is no index, and UnsupportedError if the index follows another draft.
    """
    record = _read_record(folder)
    if record is None:
        raise IntegrityError(f"{folder} is no index", why=f"it has no {RECORD}", remedy="make one: toolkit index")
    wrong = _find_wrong(folder, record)
    whole = check("files", not wrong, "; ".join(wrong) or f"{len(record['files'])} files")
    if wrong:
        return [whole]
    wheels = sorted(name for name in record["files"] if name.endswith(".whl"))
    elsewhere = record.get("addresses", {})
    entries = [replace(_read_wheel(folder / name, {}), address=str(elsewhere.get(name, ""))) for name in wheels]
    texts = _compose(entries)
    made = {name: digest.digest_bytes(content) for name, content in texts.items()}
    differing = sorted(name for name, value in made.items() if record["files"].get(name) != value)
    documents = {f"{wheel}.{end}" for wheel in wheels for end in _list_ends(folder / wheel)}
    differing += sorted(record["files"].keys() - texts.keys() - {*wheels} - documents)
    return [
        whole,
        check("pages", not differing, ", ".join(differing) or f"those of {len(wheels)} wheels"),
        *(_check_provenance(folder / name) for name in wheels if f"{name}.{wheel_documents.PROVENANCE}" in documents),
    ]


def _check_provenance(wheel: Path) -> Finding:
    statement = files.read_json(wheel.with_name(f"{wheel.name}.{wheel_documents.PROVENANCE}"))
    subject = {"name": wheel.name, "digest": wheel_documents.split(digest.digest_file(wheel))}
    named = isinstance(statement, dict) and subject in statement.get("subject", [])
    return check(f"provenance of {wheel.name}", named, "names this wheel" if named else "does not name this wheel")


def require_own(folder: Path) -> None:
    """Raise UsageError if a folder holds other files than an index, and UnsupportedError if its draft is another."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} is no folder", remedy="choose another one")
    if not folder.exists() or not any(folder.iterdir()):
        return
    record = _read_record(folder)
    listed = record["files"].keys() | {RECORD} if record else set()
    strange = sorted(name for name in _list_files(folder) if name not in listed)
    if strange:
        raise UsageError(
            f"{folder} holds {strange[0]}, which is not of an index",
            why="it would be lost with the old index" if record else f"the folder has no {RECORD}",
            remedy="choose an empty folder, or take it away",
        )


def _read_sources(sources: Sequence[Path]) -> list[Entry]:
    if not sources:
        raise UsageError("no wheel is named", remedy="give dist/NAME, or .whl files")
    by_name: dict[tuple[str, str], Entry] = {}
    for source in sources:
        wheel = variant.find_wheel(source)
        beside = {end: wheel.with_name(end) for end in _list_documents(source)} if source.is_dir() else {}
        entry = _read_wheel(wheel, beside)
        same = by_name.setdefault((entry.project, entry.name), entry)
        if same.digest != entry.digest:
            raise UsageError(
                f"two different wheels have the name {entry.name}",
                why=f"{same.path} and {entry.path}",
                remedy="leave one of them out",
            )
    entries = [by_name[key] for key in sorted(by_name)]
    _require_apart(entries)
    return entries


def _require_apart(entries: Sequence[Entry]) -> None:
    """Raise UsageError if a label of a version is for different cards, or two labels are for the same ones."""
    labels: dict[tuple[str, str, str], Entry] = {}
    described: dict[tuple[str, str, bytes], Entry] = {}
    for entry in entries:
        if entry.variant:
            first = labels.setdefault((entry.project, entry.version, entry.variant.label), entry)
            if first.variant != entry.variant:
                raise UsageError(
                    f"two wheels of {entry.project} {entry.version} have the label {entry.variant.label}",
                    why=f"{first.name} and {entry.name} are for different cards",
                    remedy="give one of them another label: toolkit variant --label",
                )
            properties = variant.compose([replace(entry.variant, label="")])
            first = described.setdefault((entry.project, entry.version, properties), entry)
            if first.variant and first.variant.label != entry.variant.label:
                raise UsageError(
                    f"two labels of {entry.project} {entry.version} are for the same cards: {first.variant.label} and "
                    f"{entry.variant.label}",
                    why=f"an installer could take {first.name} as well as {entry.name}",
                    remedy="leave one of them out, or give both one label: toolkit variant --label",
                )


def _read_wheel(path: Path, documents: Mapping[str, Path]) -> Entry:
    inspected = variant.inspect(path)
    with zipfile.ZipFile(path) as opened:
        name = next(
            member for member in opened.namelist() if member.endswith(".dist-info/METADATA") and member.count("/") == 1
        )
        metadata = opened.read(name)
    return Entry(
        path=path,
        digest=inspected.digest,
        size=inspected.bytes,
        project=canonicalize_name(inspected.name),
        version=str(Version(inspected.version)),
        metadata=metadata,
        variant=variant.read(path),
        documents=documents,
    )


def _list_documents(folder: Path) -> list[str]:
    """Return the names of the provenance, the bill of materials and the signatures in the folder of a wheel."""
    return sorted(path.name for path in folder.iterdir() if path.name in _DOCUMENTS or is_envelope(path.name))


def _list_ends(wheel: Path) -> list[str]:
    """Return the ends of the names of the documents that lie beside a wheel of an index."""
    prefix = f"{wheel.name}."
    ends = (path.name.removeprefix(prefix) for path in wheel.parent.iterdir() if path.name.startswith(prefix))
    return [end for end in ends if end in _DOCUMENTS or is_envelope(end)]


def _compose(entries: Iterable[Entry]) -> dict[str, bytes]:
    """Return the text of each page and file that is made, by its name."""
    projects: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        projects[entry.project].append(entry)
    texts = {
        _PAGE: _render_page("Packages", [(f"{name}/", name, {}) for name in sorted(projects)]),
        _JSON_PAGE: _render_json({"projects": [{"name": name} for name in sorted(projects)]}),
    }
    for project, project_entries in projects.items():
        texts |= {f"{project}/{name}": content for name, content in _compose_project(project, project_entries).items()}
    return texts


def _compose_project(project: str, entries: Sequence[Entry]) -> dict[str, bytes]:
    texts = {f"{entry.name}{_METADATA}": entry.metadata for entry in entries}
    variants: dict[str, dict[str, Variant]] = defaultdict(dict)
    for entry in entries:
        if entry.variant:
            stem = "-".join(entry.name.split("-")[:2])
            variants[f"{stem}-variants.json"][entry.variant.label] = entry.variant
    descriptions = {name: variant.compose(labels.values()) for name, labels in variants.items()}
    texts |= descriptions
    links: list[tuple[str, str, Mapping[str, str]]] = []
    listed: list[dict[str, Any]] = []
    for entry in entries:
        value, described = _hex(entry.digest), f"sha256={_hex(digest.digest_bytes(entry.metadata))}"
        attributes = {"data-core-metadata": described, "data-dist-info-metadata": described}
        core = {"sha256": _hex(digest.digest_bytes(entry.metadata))}
        item: dict[str, Any] = {"filename": entry.name, "url": entry.link, "hashes": {"sha256": value}}
        item |= {"size": entry.size, "core-metadata": core, "dist-info-metadata": core}
        if entry.requires_python:
            attributes["data-requires-python"] = item["requires-python"] = entry.requires_python
        links.append((f"{entry.link}#sha256={value}", entry.name, attributes))
        listed.append(item)
    for name, content in sorted(descriptions.items()):
        value = _hex(digest.digest_bytes(content))
        links.append((f"{quote(name)}#sha256={value}", name, {}))
        listed.append({"filename": name, "url": quote(name), "hashes": {"sha256": value}, "size": len(content)})
    texts[_PAGE] = _render_page(f"Links for {project}", links)
    versions = sorted({entry.version for entry in entries}, key=Version)
    texts[_JSON_PAGE] = _render_json({"name": project, "versions": versions, "files": listed})
    return texts


def _render_page(title: str, links: Iterable[tuple[str, str, Mapping[str, str]]]) -> bytes:
    lines = [
        f'<a href="{html.escape(place)}"'
        + "".join(f' {name}="{html.escape(value)}"' for name, value in sorted(attributes.items()))
        + f">{html.escape(text)}</a><br>"
        for place, text, attributes in links
    ]
    head = '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    head += f'<meta name="pypi:repository-version" content="{_API}">\n<title>{html.escape(title)}</title>\n</head>\n'
    return "\n".join([f"{head}<body>", f"<h1>{html.escape(title)}</h1>", *lines, "</body>", "</html>", ""]).encode()


def _render_json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps({"meta": {"api-version": _API}, **value}, indent=2, sort_keys=True) + "\n").encode()


def _hex(value: str) -> str:
    return value.removeprefix("sha256:")


def _read_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of an index, or None. Raises UnsupportedError if the index follows another draft."""
    value = files.read_json(folder / RECORD)
    if not isinstance(value, dict) or not isinstance(value.get("files"), dict):
        return None
    if not isinstance(value.get("addresses", {}), dict):
        return None
    if value.get("schema") != _SCHEMA:
        raise UnsupportedError(
            f"{folder} is an index of another version of this program", remedy="choose another folder"
        )
    variant.require_draft(f"the index {folder}", value.get("variants"))
    return value


def _list_files(folder: Path) -> Iterator[str]:
    """Yield the path of each file and of each empty folder in a folder, relative to it."""
    for root, folders, names in os.walk(folder):
        links = [name for name in folders if Path(root, name).is_symlink()]
        for name in (*names, *links, *([] if names or folders or Path(root) == folder else [""])):
            yield str(Path(root, name).relative_to(folder))


def _find_wrong(folder: Path, record: Mapping[str, Any]) -> list[str]:
    """Return in words which files of an index are missing, changed, or not its own."""
    present = {*_list_files(folder)} - {RECORD}
    wrong = [f"{name} is missing" for name in sorted(record["files"].keys() - present)]
    wrong += [f"{name} is not of the index" for name in sorted(present - record["files"].keys())]
    for name in sorted(present & record["files"].keys()):
        path = folder / name
        if path.is_symlink() or digest.digest_file(path) != record["files"][name]:
            wrong.append(f"{name} has changed")
    return wrong


def _copy(source: Path, target: Path) -> None:
    """Copy a file; where the file system can, both share their bytes until one is changed."""
    with source.open("rb") as old, target.open("wb") as new:
        size = os.fstat(old.fileno()).st_size
        done = 0
        try:
            while done < size:
                moved = os.copy_file_range(old.fileno(), new.fileno(), size - done)
                if not moved:
                    break
                done += moved
        except OSError:
            old.seek(done)
            new.seek(done)
            shutil.copyfileobj(old, new, 1 << 20)
    files.set_mode(target, 0o644)


def _take_place(made: Path, folder: Path) -> None:
    """Exchange a finished index with the old one, if there is one, and remove the old one."""
    try:
        if not folder.exists():
            made.replace(folder)
            return
        libc = ctypes.CDLL(None, use_errno=True)
        places = os.fsencode(made), os.fsencode(folder)
        if libc.renameat2(_HERE, places[0], _HERE, places[1], _RENAME_EXCHANGE):
            # A file system that cannot exchange two folders: for a moment there is none.
            folder.replace(made.with_name("old"))
            made.replace(folder)
    except OSError as error:
        raise PreflightError(
            f"cannot write {folder}", why=error.strerror or str(error), remedy="choose another folder"
        ) from error
