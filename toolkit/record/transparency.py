"""Compares signed statements with a log: each is in it, and each of the log is here; the log only grows.

The newest head that this machine has seen of a log is remembered in its state folder. A witness is another place that
remembers: its cosigned head is a file that it publishes.
"""

import base64
import fcntl
import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from toolkit import digest, files, signing
from toolkit.errors import IntegrityError, ToolkitError, UsageError
from toolkit.findings import Finding, check
from toolkit.keys import Signer
from toolkit.record import Target, attestation, head, log, proofs
from toolkit.record.head import Cosignature, Head, Note
from toolkit.record.log import Log
from toolkit.signing import Policy, Statement

SEEN: Final = "heads"
"""Folder below the state folder with the newest head of each log that this machine has seen."""

COMMENTS: Final = ("rebuild", "replay")
"""Kinds of statements beside a thing's own envelope: without a log, nothing says that one was removed."""


_ASK: Final = "ask the owner of the log, and keep both heads: each is signed"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a log says of a statement. All is computed from the envelope alone."""

    kind: str  # as in a policy
    statement: str  # digest of its bytes, those that are signed
    about: str  # digest of what it is about: the wheel's file, else the manifest, else the first subject
    request: str  # digest of the type and the parameters of a build; empty for other statements
    signers: tuple[str, ...]  # ids of the keys in the envelope, sorted

    def encode(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The log in which statements must be."""

    folder: Path
    origin: str = ""  # its name; empty: any
    witness: Path | None = None  # the file with a head that a witness has cosigned


def parse(content: bytes) -> Entry | None:
    """Read an entry; None if another program has written it."""
    try:
        value: Any = json.loads(content)
        found = Entry(**{**value, "signers": tuple(value["signers"])})
        texts = (found.kind, found.statement, found.about, found.request, *found.signers)
        return found if found.encode() == content and all(isinstance(text, str) for text in texts) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def describe(path: Path, kind: signing.Signed) -> Entry:
    """Return the entry of an envelope or of ``model.sig``. Raises IntegrityError: it cannot be read."""
    value = signing.read_json(path)
    value = value.get("dsseEnvelope", value) if isinstance(value, dict) else value
    match value:
        case {"payload": str(text), "signatures": list(listed)}:
            try:
                payload = base64.b64decode(text, validate=True)
            except ValueError:  # no base64, or no ASCII
                payload = b""
        case _:
            raise IntegrityError(f"{path.name} is no envelope")
    statement = signing.parse_statement(payload, kind)
    build = statement.predicate.get("buildDefinition")
    asked = [statement.build_type, build.get("externalParameters")] if isinstance(build, dict) else None
    return Entry(
        kind=kind,
        statement=digest.digest_bytes(payload),
        about=_find_main(statement),
        request=digest.digest_value(asked) if asked else "",
        signers=tuple(sorted({str(each.get("keyid", "")) for each in listed if isinstance(each, dict)})),
    )


def _find_main(statement: Statement) -> str:
    names = sorted(statement.subjects, key=lambda name: (not name.endswith(".whl"), name != "manifest.json"))
    return statement.subjects[names[0]] if names else ""


def append(folder: Path, target: Target, state: Path, signer: Signer) -> tuple[Log, int]:
    """Add the statements of a thing and of the links behind it to a log; return it, and how many were added.

    Raises IntegrityError: there is none, or one cannot be read; as :func:`toolkit.record.log.append`.
    """
    found = [describe(path, kind) for _, kind, path in attestation.list_statements(target, state)]
    if not found:
        raise IntegrityError(f"{target.path} is not signed", remedy="`toolkit sign` signs it")
    return log.append(folder, [each.encode() for each in found], signer)


def check_log(target: Target, state: Path, policy: Policy, asked: Asked) -> list[Finding]:
    """Return whether a log holds, goes on from the heads seen before, and has exactly what is signed here."""
    with _remembering(state):
        try:
            known = log.read(asked.folder)
            found = [_check_head(known, policy, asked.origin)]
        except ToolkitError as error:
            return [_fail("head", error.what)]
        if found[0].state == "ok":
            found.append(_check_seen(state, known))
        if asked.witness:
            found.append(_check_witness(known, policy, asked.witness))
        if all(each.state == "ok" for each in found):
            _remember(state, known.note)
    entries = [(index, entry) for index, each in enumerate(known.entries) if (entry := parse(each))]
    return [*found, *_check_entries(target, state, known, entries)]


def _check_head(known: Log, policy: Policy, origin: str) -> Finding:
    signer = head.require_signer(known.note, policy)
    if origin and known.head.origin != origin:
        return _fail("head", f"this is the log {known.head.origin}, and {origin} is asked for")
    root = base64.b64encode(known.head.root).decode()
    return check(
        "log.head", True, f"{signer.name} signed {known.head.size} entries of {known.head.origin}, root {root}"
    )


def _fail(name: str, why: str, remedy: str = _ASK) -> Finding:
    return replace(check(f"log.{name}", False, why), remedy=remedy)


@contextmanager
def _remembering(state: Path) -> Iterator[None]:
    """Hold the lock of what is remembered while a log is read, so that no other command sees a newer head meanwhile."""
    files.require_writable(state / SEEN)
    with files.open_own(state / SEEN / "lock") as stream:
        files.lock_file(stream, fcntl.LOCK_EX)
        yield


def _find_memory(state: Path, origin: str) -> Path:
    return state / SEEN / hashlib.sha256(origin.encode()).hexdigest()[: digest.SHORT]


def _remember(state: Path, note: Note) -> None:
    files.write_atomically(_find_memory(state, note.head.origin), note.encode())


def _check_seen(state: Path, known: Log) -> Finding:
    """Compare the head of a log with the newest one of it that this machine remembers."""
    place = _find_memory(state, known.head.origin)
    if not place.exists():
        return check("log.seen", True, f"seen for the first time; this machine remembers a log that holds in {place}")
    try:
        seen = head.parse(place.read_bytes()).head
    except IntegrityError:
        return _fail("seen", f"the head that this machine has seen cannot be read: {place}")
    if why := _find_break(seen, known):
        return _fail("seen", f"{why}; this machine has seen that one: {place}")
    return check("log.seen", True, f"goes on from the {seen.size} entries that this machine has seen")


def _find_break(earlier: Head, known: Log) -> str:
    """Say why a log does not go on from an earlier head of it; empty if it does."""
    if earlier.origin != known.head.origin:
        return f"the earlier head is of the log {earlier.origin}"
    if earlier.size > known.head.size:
        return f"rolled back: the log has {known.head.size} entries, and an earlier head {earlier.size}"
    proof = proofs.prove_consistency(known.leaves, earlier.size)
    if not proofs.goes_on(earlier.tree, known.head.tree, proof):
        return f"forked: the first {earlier.size} entries are not those of an earlier head"
    return ""


def _check_witness(known: Log, policy: Policy, place: Path) -> Finding:
    try:
        note, seen = read_witness(place, policy)
    except (IntegrityError, OSError) as error:
        return _fail("witness", error.what if isinstance(error, IntegrityError) else str(error))
    said = f"{seen.witness.name} saw {note.head.size} entries on {_tell(seen.time)}"
    why = _find_break(note.head, known)
    return _fail("witness", f"{why}; {said}") if why else check("log.witness", True, said)


def read_witness(place: Path, policy: Policy) -> tuple[Note, Cosignature]:
    """Return the head in a witness's file, and its newest cosignature. Raises IntegrityError: none holds; OSError."""
    note = head.parse(place.read_bytes())
    signer = head.require_signer(note, policy)
    found = [each for each in head.list_cosignatures(note, policy) if each.witness.key.keyid != signer.key.keyid]
    if not found:
        raise IntegrityError(f"{place} has no cosignature of another key that may be a `witness`")
    return note, max(found, key=lambda each: each.time)


def _tell(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(min(seconds, 1 << 37)))


def witness(folder: Path, out: Path, state: Path, *, policy: Policy, name: str, signer: Signer) -> Note:
    """Cosign the head of a log that goes on from what this machine has seen and from the head in ``out``.

    The result replaces ``out``. Raises IntegrityError: the log does not go on from these, or no key that may sign a log
    has signed its head; UsageError: the name, the key or the path is of no use.
    """
    head.require_name(name)
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is no file", remedy="--out takes the file for the cosigned head")
    with _remembering(state):
        known = log.read(folder)
        head.require_signer(known.note, policy)
        found = [_check_seen(state, known)]
        if out.is_file() and (why := _find_break(head.parse(out.read_bytes()).head, known)):
            found.append(_fail("witness", f"{why}; {out} has that one"))
        require(found)
        note = head.cosign(known.note, name, signer, int(time.time()))
        files.write_atomically(out, note.encode())
        _remember(state, known.note)
    return note


def require(found: Iterable[Finding]) -> None:
    """Raise IntegrityError if a finding fails."""
    if wrong := [item.evidence for item in found if item.state != "ok"]:
        raise IntegrityError(
            "the log is not what it was",
            why="; ".join(wrong),
            remedy=_ASK,
        )


def _check_entries(target: Target, state: Path, known: Log, entries: Sequence[tuple[int, Entry]]) -> Iterator[Finding]:
    """Yield whether each statement here is in the log, and whether each that it has about these things is here."""
    here: list[Entry] = []
    for name, kind, path in attestation.list_statements(target, state):
        try:
            here.append(entry := describe(path, kind))
        except IntegrityError as error:
            yield _fail("entry", f"{name}: {error.what}")
            continue
        yield _check_entry(name, entry, known, entries)
    things = {entry.about for entry in here if entry.kind not in COMMENTS}
    newest = {
        (entry.kind, entry.about, entry.signers): (index, entry)
        for index, entry in entries
        if entry.kind in COMMENTS and entry.about in things
    }
    statements = {entry.statement for entry in here}
    for index, entry in newest.values():
        if entry.statement not in statements:
            signers = ", ".join(each[:8] for each in entry.signers)
            said = f"a {entry.kind} statement by key {signers}, entry {index}, is in the log and not here"
            yield _fail("removed", said, "fetch the folder again from where it was logged")


def _check_entry(name: str, entry: Entry, known: Log, entries: Sequence[tuple[int, Entry]]) -> Finding:
    index = next((index for index, each in entries if each.statement == entry.statement), None)
    if index is None:
        return _fail("entry", f"{name} is not in the log", "`toolkit log append` adds it, with the log's key")
    proof = proofs.prove_inclusion(known.leaves, index)
    if not proofs.includes(known.head.root, known.head.size, known.leaves[index], index, proof):
        return _fail("entry", f"{name}: its proof does not lead to the head")
    later = [
        str(at)
        for at, each in entries
        if at > index and (each.kind, each.request) == (entry.kind, entry.request) and each.about != entry.about
    ]
    newer = f"; a later build of the same request is entry {', '.join(later)}" if entry.request and later else ""
    return check("log.entry", True, f"{name} is entry {index}{newer}")
