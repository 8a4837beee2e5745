"""Makes a package index of wheels as a folder of files, which any web server can serve, and verifies one.

Its pages are those of the simple repository interface, as HTML (PEP 503) and as JSON (PEP 691), with the METADATA of
each wheel beside it (PEP 658 and 714). Variants of wheels have their properties in ``NAME-VERSION-variants.json`` (PEP
825, a draft). All follows from the wheels alone, without a time, so that the same sources make the same bytes.
"""

import html
import json
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from toolkit.base import digest, files
from toolkit.base.errors import IntegrityError, PreflightError, UnsupportedError, UsageError
from toolkit.base.findings import Finding, check
from toolkit.base.signing import ENVELOPE
from toolkit.wheel import archive, variant, wheel_documents
from toolkit.wheel.variant import Source, Variant

RECORD: Final = "toolkit-index.json"
"""Name of the record, which lists the digests of all files. A folder without it is no index, and is left alone."""
_SCHEMA: Final = 1
_PAGE, _JSON_PAGE = "index.html", "index.json"
_METADATA: Final = ".metadata"
_DOCUMENTS: Final = (wheel_documents.PROVENANCE, wheel_documents.BILL)
_API: Final = "1.1"
_LINKED: Final = 0o7446, 0o444
"""Which bits of a wheel's mode count for a hard link, and their value: all may read it, and not all may write it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A wheel of an index."""

    source: Source
    project: str  # normalized name
    version: str
    metadata: bytes
    variant: Variant | None
    documents: Mapping[str, Path] = field(default_factory=dict)  # what lies beside it, by the end of its name there
    address: str = ""  # where installers download it; empty: beside the pages

    @property
    def name(self) -> str:
        return self.source.path.name

    @property
    def digest(self) -> str:
        return self.source.digest

    @property
    def size(self) -> int:
        return self.source.status.st_size

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


def make(folder: Path, sources: Sequence[Path], addresses: Sequence[str] = (), label: str = "") -> list[Entry]:
    """Make an index of wheels, or replace one, and return its wheels. The new index has these sources alone.

    ``addresses``: where installers download wheels, as :func:`assign_addresses` takes it. ``label``: turn wheels into
    variants of this label, or with ``auto`` of one that follows from each wheel; variants stay as they are. The index
    is written beside the folder, and takes its place in one step.

    Raises:
        UsageError: a source is no wheel, two wheels contradict each other, a text is no address, or the folder holds
            something else.
        UnsupportedError: the folder has an index of another draft of variants.
        IntegrityError: a wheel is not whole, has changed since it was recorded, or is a variant that says something
            else than its files.
    """
    variant.require_label(label)
    require_own(folder)
    parent = folder.absolute().parent
    files.require_writable(parent)
    with files.stage(parent, digest.shorten(digest.digest_value(str(folder.absolute())))) as staging:
        entries = _read_sources(sources, label, staging.path / "variants")
        assigned = assign_addresses({entry.name for entry in entries}, addresses)
        entries = [replace(entry, address=assigned.get(entry.name, "")) for entry in entries]
        texts = _compose(entries)
        documents = {f"{entry.place}.{end}": path for entry in entries for end, path in entry.documents.items()}
        digests = {name: digest.digest_bytes(content) for name, content in texts.items()}
        digests |= {name: digest.digest_file(path) for name, path in documents.items()}
        digests |= {entry.place: entry.digest for entry in entries}
        record = {"schema": _SCHEMA, "variants": variant.SCHEMA, "files": dict(sorted(digests.items()))}
        if elsewhere := {entry.place: entry.address for entry in entries if entry.address}:
            record["addresses"] = elsewhere
        if _read_record(folder) == record and not _find_wrong(folder, record):
            return entries
        made = staging.path / "index"
        with files.writing(folder):
            for entry in entries:
                (made / entry.place).parent.mkdir(parents=True, exist_ok=True)
                _place(entry.source, made / entry.place)
            for name, path in documents.items():
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
    wrong = _find_wrong(folder, record, read=digest.read_file)
    whole = check("files", not wrong, "; ".join(wrong) or f"{len(record['files'])} files")
    if wrong:
        return [whole]
    wheels = sorted(name for name in record["files"] if name.endswith(".whl"))
    elsewhere = record.get("addresses", {})
    entries = [
        replace(_read_wheel(_find_listed(folder / name, record["files"][name])), address=str(elsewhere.get(name, "")))
        for name in wheels
    ]
    texts = _compose(entries)
    made = {name: digest.digest_bytes(content) for name, content in texts.items()}
    differing = sorted(name for name, value in made.items() if record["files"].get(name) != value)
    documents = {f"{wheel}.{end}" for wheel in wheels for end in _list_ends(folder / wheel)}
    differing += sorted(record["files"].keys() - texts.keys() - {*wheels} - documents)
    return [
        whole,
        check("pages", not differing, ", ".join(differing) or f"those of {len(wheels)} wheels"),
        *(_check_provenance(entry) for entry in entries if f"{entry.place}.{wheel_documents.PROVENANCE}" in documents),
    ]


def _check_provenance(entry: Entry) -> Finding:
    wheel = entry.source.path
    statement = files.read_json(wheel.with_name(f"{wheel.name}.{wheel_documents.PROVENANCE}"))
    subject = {"name": wheel.name, "digest": wheel_documents.split(entry.digest)}
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


def _read_sources(sources: Sequence[Path], label: str, folder: Path) -> list[Entry]:
    """Return the wheels of an index. With a label, variants are made below ``folder`` of those that are none."""
    if not sources:
        raise UsageError("no wheel is named", remedy="give dist/NAME, or .whl files")
    by_name: dict[tuple[str, str], Entry] = {}
    for number, given in enumerate(sources):
        source = variant.find_wheel(given)
        if label and not variant.split_name(source.path.name)[1]:
            source = variant.find_wheel(variant.make(source.path, folder / str(number), label))
        entry = _read_wheel(source)
        if given.is_dir():
            ends = _list_documents(source.path.parent)
            entry = replace(entry, documents={end: source.path.with_name(end) for end in ends})
        same = by_name.setdefault((entry.project, entry.name), entry)
        if same.digest != entry.digest:
            raise UsageError(
                f"two different wheels have the name {entry.name}",
                why=f"{same.source.path} and {source.path}",
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
                    remedy="give one of them another label: toolkit index --label",
                )
            properties = variant.compose([replace(entry.variant, label="")])
            first = described.setdefault((entry.project, entry.version, properties), entry)
            if first.variant and first.variant.label != entry.variant.label:
                raise UsageError(
                    f"two labels of {entry.project} {entry.version} are for the same cards: {first.variant.label} and "
                    f"{entry.variant.label}",
                    why=f"an installer could take {first.name} as well as {entry.name}",
                    remedy="leave one of them out, or give both one label: toolkit index --label",
                )


def _read_wheel(source: Source) -> Entry:
    """Check every file of a wheel, and return what an index says of it: what is made is what is verified."""
    head = variant.read(source.path)
    entry = Entry(
        source=source,
        project=canonicalize_name(head.identity.name),
        version=str(Version(head.identity.version)),
        metadata=head.metadata,
        variant=head.variant,
    )
    try:
        SpecifierSet(entry.requires_python)
    except InvalidSpecifier as error:
        raise IntegrityError(f"{entry.name} names no Pythons", why=str(error), remedy=archive.REMEDY) from error
    return entry


def _find_listed(path: Path, value: str) -> Source:
    """Return a wheel of an index, whose bytes have been compared with its digest."""
    return Source(path=path, digest=value, status=path.stat())


def _list_documents(folder: Path) -> list[str]:
    """Return the names of the provenance, the bill of materials and the signatures in the folder of a wheel."""
    return sorted(path.name for path in folder.iterdir() if path.name in _DOCUMENTS or path.name == ENVELOPE)


def _list_ends(wheel: Path) -> list[str]:
    """Return the ends of the names of the documents that lie beside a wheel of an index."""
    prefix = f"{wheel.name}."
    ends = (path.name.removeprefix(prefix) for path in wheel.parent.iterdir() if path.name.startswith(prefix))
    return [end for end in ends if end in _DOCUMENTS or end == ENVELOPE]


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


def _find_wrong(
    folder: Path,
    record: Mapping[str, Any],
    *,
    read: Callable[[Path], str] = digest.digest_file,
) -> list[str]:
    """Return in words which files of an index are missing, changed, or not its own.

    ``read``: how the digests are taken.
    """
    present = {*_list_files(folder)} - {RECORD}
    wrong = [f"{name} is missing" for name in sorted(record["files"].keys() - present)]
    wrong += [f"{name} is not of the index" for name in sorted(present - record["files"].keys())]
    for name in sorted(present & record["files"].keys()):
        path = folder / name
        if path.is_symlink() or read(path) != record["files"][name]:
            wrong.append(f"{name} has changed")
    return wrong


def _place(source: Source, target: Path) -> None:
    """Put a wheel into a folder.

    A wheel of this user's gets a hard link where the file system can make one, because a copy takes seconds and space.
    This program replaces wheels, and never writes into one. Where another program does, the digest tells.
    """
    status, (mask, value) = source.status, _LINKED
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & mask == value:
        with suppress(OSError):  # another file system, or one without hard links
            target.hardlink_to(source.path.resolve())
            return
    _copy(source.path, target)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    files.set_mode(target, 0o644)


def _take_place(made: Path, folder: Path) -> None:
    """Exchange a finished index with the old one, if there is one, and remove the old one."""
    try:
        files.take_place(made, folder, made.with_name("old"))
    except OSError as error:
        raise PreflightError(
            f"cannot write {folder}", why=error.strerror or str(error), remedy="choose another folder"
        ) from error


def assign_addresses(names: Collection[str], addresses: Sequence[str]) -> dict[str, str]:
    """Return the address of each wheel that has one, by the name of the wheel.

    ``addresses``: one of a folder, which ends in a slash and counts for all wheels, and those of single wheels. Raises
    UsageError if a text is no such address, if no wheel has the name in it, or if one wheel has two addresses
    or two folders are given.
    """
    folders: list[str] = []
    single: dict[str, str] = {}
    for address in addresses:
        name = _read_wheel_name(address)
        if not name:
            folders.append(address)
        elif name not in names:
            raise UsageError(
                f"no wheel has the name of {address}",
                remedy="give the wheel too: its hash and its metadata stand in the index",
            )
        elif single.setdefault(name, address) != address:
            raise UsageError(f"{name} has two addresses: {single[name]} and {address}", remedy="leave one out")
    if len(folders) > 1:
        raise UsageError(f"two folders of wheels are named: {folders[0]} and {folders[1]}", remedy="leave one out")
    return {**{name: f"{folder}{quote(name)}" for folder in folders for name in names}, **single}


def _read_wheel_name(address: str) -> str:
    """Return the name of the wheel that an address is of; empty for a folder. Raises UsageError."""
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    name = unquote(parts.path.rpartition("/")[2])
    whole = parts.scheme in {"http", "https"} and parts.netloc and (not name or name.endswith(".whl"))
    # Installers write endings behind an address, such as `.metadata`.
    if not whole or not parts.path or parts.query or parts.fragment or any(map(str.isspace, address)):
        raise UsageError(
            f"not an address of wheels: {address[:200]!r}",
            why="it is the URL of a folder, which ends in a slash, or of a wheel, without `?` and `#`",
            remedy="https://example.org/wheels/, for example",
        )
    return name
