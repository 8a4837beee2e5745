"""Signs in-toto statements as DSSE envelopes, and checks them by a policy of who may sign what.

Formats: https://github.com/in-toto/attestation (Statement v1) and https://github.com/secure-systems-lab/dsse. The
signature covers the statement, and the statement names each file by its SHA-256. Keys, signatures and envelopes are
those of `securesystemslib`, imported inside functions because it is slow to load.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit.base import files, keys
from toolkit.base.errors import IntegrityError, UsageError
from toolkit.base.findings import Finding, check
from toolkit.base.keys import Signer
from train.system.files import read_regular
from train.system.output import printable

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

ENVELOPE: Final = "attestation.dsse.json"
PAYLOAD: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"

LARGEST: Final = 16 << 20
"""Bytes of the largest envelope that is read; one of an environment with 100 packages has 30 kB."""

CHANGED: Final = "do not use it: fetch it again from whoever signed it"
"""What to do if a signature does not hold, and nothing better is known."""

_FIELDS: Final = {"_type", "subject", "predicateType", "predicate"}


@dataclass(frozen=True, kw_only=True)
class Statement:
    kind: str  # the kind of artifact that it is about; a policy names it
    subjects: Mapping[str, str]  # digest of each file or image by name, as ``sha256:...``
    predicate_type: str  # a URI
    predicate: Mapping[str, Any]

    @property
    def build_type(self) -> object:
        """The type of a SLSA provenance, which tells statements of the same predicate type apart; else None."""
        return self.predicate.get("buildDefinition", {}).get("buildType")

    def encode(self) -> bytes:
        """Return its JSON. Equal statements have equal bytes, so that several keys can sign them."""
        value = {
            "_type": STATEMENT,
            "subject": [
                {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}
                for name, digest in sorted(self.subjects.items())
            ],
            "predicateType": self.predicate_type,
            "predicate": self.predicate,
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True, kw_only=True)
class Signatory:
    name: str
    key: "SSlibKey"  # the public key
    may: tuple[str, ...]  # the kinds that it may sign


Signatories = tuple[Signatory, ...]


@dataclass(frozen=True)
class Policy:
    """Who may sign what. Without signatories, no signature is asked for."""

    signatories: Signatories = ()

    def __iter__(self) -> Iterator[Signatory]:
        return iter(self.signatories)

    def __bool__(self) -> bool:
        return bool(self.signatories)


def locate(record: Path) -> Path:
    """Return where the envelope of a folder or of one file is."""
    if record.is_dir():
        return record / ENVELOPE
    return record.with_name(ENVELOPE.replace(".", f"-{record.stem}.", 1))


def discard(record: Path) -> None:
    """Remove the envelope of what is about to change."""
    locate(record).unlink(missing_ok=True)


def read_policy(paths: Iterable[Path], kinds: Sequence[str]) -> Policy:
    """Read public keys, which may sign everything, and policies. ``kinds``: what a policy can let a key sign.

    :func:`toolkit.records.read_policy` knows them. Raises UsageError if a file is neither.
    """
    policy: list[Signatory] = []
    for path in paths:
        content = keys.read_file(path)
        if content.lstrip().startswith((b"-----BEGIN", *keys.OPENSSH)):
            policy.append(Signatory(name=path.name, key=keys.read_public(path, content), may=tuple(kinds)))
        else:
            policy += _read_policy(path, content, kinds)
    return Policy(tuple(policy))


def _read_policy(path: Path, content: bytes, kinds: Sequence[str]) -> Signatories:
    try:
        value = files.parse_yaml(content)
    except ValueError as error:
        raise _refuse(path, str(error).partition("\n")[0]) from error
    if not isinstance(value, dict):
        raise _refuse(path, "it is neither a public key, in PEM or as OpenSSH writes it, nor a list of signers")
    _require_words(path, "it", value, ("signers",))
    match value["signers"]:
        case [_, *_] as entries:
            return tuple(_read_signatory(path, entry, kinds) for entry in entries)
    raise _refuse(path, "`signers` is no list with at least one signer")


def _read_signatory(path: Path, entry: object, kinds: Sequence[str]) -> Signatory:
    if isinstance(entry, dict):
        _require_words(path, f"the signer {str(entry.get('name', ''))[:80]}", entry, ("name", "key", "may"))
    match entry:
        case {"name": str(name), "key": str(key), "may": [_, *_] as may}:
            unknown = [str(kind) for kind in may if kind not in kinds]
            if unknown:
                raise _refuse(path, f"`may` of {name} has {', '.join(unknown)}; it can have {', '.join(kinds)}")
            file = path.parent / key
            return Signatory(name=name, key=keys.read_public(file, keys.read_file(file)), may=tuple(may))
    raise _refuse(path, f"a signer has a name, the file of a key, and a list of what it may sign: {str(entry)[:120]}")


def _require_words(path: Path, what: str, value: Mapping[Any, Any], known: Sequence[str]) -> None:
    """Raise UsageError if a part of a policy has another word than the known ones, or lacks one."""
    unknown = [str(word)[:80] for word in value if word not in known]
    missing = [word for word in known if word not in value]
    wrong = f"has {', '.join(unknown)}" if unknown else f"lacks {', '.join(missing)}"
    if unknown or missing:
        raise _refuse(path, f"{what} {wrong}; it can have {', '.join(known)}")


def _refuse(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is no policy", why=why, remedy="docs/sign.md has an example")


def is_signed(record: Path, statement: Statement, signer: Signer) -> bool:
    """Return whether this key has signed this statement."""
    try:
        envelope = _read_envelope(locate(record))
    except IntegrityError:
        return False
    return envelope.payload == statement.encode() and holds(envelope, signer.public_key)


def write(record: Path, statement: Statement, signer: Signer, *, replace: bool) -> None:
    """Sign a statement, beside other signatures of the same statement.

    ``replace``: an envelope of another statement is replaced. Raises IntegrityError if there is one already.
    """
    from securesystemslib.dsse import Envelope

    path, payload = locate(record), statement.encode()
    with files.changing(path):
        envelope = Envelope(payload, PAYLOAD, {})
        if path.exists() and not replace:
            envelope = _read_envelope(path)
        if envelope.payload != payload:
            raise IntegrityError(
                f"{record} has changed since it was signed",
                why=f"the statement in {path.name} is of something else",
                remedy=f"find out why; `toolkit sign {record} --replace` signs what is there now",
            )
        envelope.sign(signer)
        files.write_json(path, envelope.to_dict())


def verify(record: Path, expected: Statement, policy: Policy, *, whole: bool = True) -> Finding:
    """Check the envelope beside a thing against what the thing is now.

    ``whole``: its predicate too, and not the type and the digests alone.
    """
    try:
        signatories, statement = read(record, expected.kind, policy)
        compare(statement, expected, record, whole=whole)
    except IntegrityError as error:
        return replace(check("signature", False, error.what), remedy=error.remedy or CHANGED)
    names = ", ".join(dict.fromkeys(f"{each.name} (key {each.key.keyid[:8]})" for each in signatories))
    return check("signature", True, f"{names} signed {len(expected.subjects)} digests")


def read(record: Path, kind: str, policy: Policy) -> tuple[Signatories, Statement]:
    """Return a statement, and who of the policy signed it. Raises IntegrityError if nobody who may has signed it."""
    envelope = _read_envelope(locate(record))
    return _require_signatory(envelope, kind, policy), parse_statement(envelope.payload, kind)


def require_unchanged(record: Path, now: Statement) -> None:
    """Raise IntegrityError unless the envelope beside a thing, whoever signed it, is about what the thing is now."""
    try:
        compare(parse_statement(_read_envelope(locate(record)).payload, now.kind), now, record, whole=True)
    except IntegrityError as error:
        raise IntegrityError(
            f"{record} has changed since it was signed",
            why=error.what,
            remedy="fetch or make it again; if it was changed on purpose, `toolkit sign --replace` signs it anew",
        ) from error


def names(record: Path, digest: str) -> bool:
    """Return whether the envelope beside a thing names this digest, whoever signed it."""
    if not locate(record).exists():
        return False
    try:
        statement = parse_statement(_read_envelope(locate(record)).payload, "wheel")
    except IntegrityError:
        return False
    return digest in statement.subjects.values()


def describe(record: Path) -> str:
    """Say in a few words who signed, without a check."""
    path = locate(record)
    if not path.exists():
        return "none"
    try:
        ids = [keyid[:8] for keyid in _read_envelope(path).signatures]
    except IntegrityError as error:
        return printable(error.what)
    return f"by key {printable(', '.join(ids))}, not checked (`toolkit verify --trust` checks whose it is)"


def _require_signatory(envelope: "Envelope", kind: str, policy: Policy) -> Signatories:
    known = [signatory for signatory in policy if signatory.key.keyid in envelope.signatures]
    if not known:
        ids = ", ".join(map(keys.shorten, envelope.signatures))
        raise IntegrityError(
            f"signed by key {ids}, which is not trusted",
            remedy=f"ask who owns key {ids}; if you trust that signer, add `--trust THEIR.pub`",
        )
    for signatory in known:
        if not holds(envelope, signatory.key):
            raise IntegrityError(f"the signature is not that of {signatory.name} for this statement")
    return require_allowed(known, kind)


def require_allowed(known: Iterable[Signatory], kind: str) -> Signatories:
    """Return those that may sign a kind. Raises IntegrityError if none of them may."""
    if not (allowed := tuple(signatory for signatory in known if kind in signatory.may)):
        rights = "; ".join(f"{signatory.name} may sign {', '.join(signatory.may)}" for signatory in known)
        raise IntegrityError(
            f"{rights}: not {kind}", remedy=f"let a signer with `may: [{kind}]` sign it, or change the policy"
        )
    return allowed


def holds(envelope: "Envelope", key: "SSlibKey") -> bool:
    """Return whether an envelope has a signature of this key that is one of its payload."""
    from securesystemslib.exceptions import VerificationError

    try:
        envelope.verify([key], 1)
    except VerificationError:
        return False
    return True


def compare(signed: Statement, expected: Statement, record: Path, *, whole: bool) -> None:
    """Compare a signed statement with what the files of a folder give, with ``whole`` its predicate too.

    Raises IntegrityError.
    """
    if (signed.predicate_type, signed.build_type) != (expected.predicate_type, expected.build_type):
        raise IntegrityError(f"the statement is not of a {expected.kind}: {signed.build_type or signed.predicate_type}")
    wrong = []
    for name in sorted(signed.subjects.keys() | expected.subjects.keys()):
        if name not in signed.subjects:
            wrong.append(f"{name} is not signed")
        elif name not in expected.subjects:
            here = (record / name).is_file()
            wrong.append(f"{name} was signed and {'another file is taken in its place' if here else 'is not here'}")
        elif signed.subjects[name] != expected.subjects[name]:
            wrong.append(f"{name} is not what was signed")
    if wrong:
        more = f" and {len(wrong) - 5} more" * (len(wrong) > 5)
        raise IntegrityError("; ".join(wrong[:5]) + more)
    if whole and signed.encode() != expected.encode():
        raise IntegrityError(f"the statement says otherwise than the files: {_name_difference(signed, expected)}")


def _name_difference(signed: Statement, expected: Statement) -> str:
    first, second = signed.predicate, expected.predicate
    names = sorted(name for name in {*first, *second} if first.get(name) != second.get(name))
    return ", ".join(names) or "a number or a truth value is of another type"


def _read_envelope(path: Path) -> "Envelope":
    return parse_envelope(read_json(path), path.name)


def read_json(path: Path) -> object:
    """Read a JSON file strictly. Raises IntegrityError if it is no regular file, too large, or cannot be read."""
    if path.is_symlink():
        raise IntegrityError(f"{path.name} is no regular file, but a link")
    try:
        return parse(read_regular(path, LARGEST), path.name)
    except OSError as error:
        message = f"{path.name} is no regular file, or one of more than {LARGEST >> 20} MiB"
        raise IntegrityError(f"{message}: {error.strerror}") from error


def parse_envelope(value: object, name: str) -> "Envelope":
    """Return the envelope that a JSON value is. Raises IntegrityError if it is not exactly one."""
    from securesystemslib.dsse import Envelope

    match value:
        case {"payload": str(payload), "payloadType": type_, "signatures": [_, *_] as listed, **rest} if (
            not rest and all(_is_signature(signature) for signature in listed)
        ):
            if type_ != PAYLOAD:
                raise IntegrityError(f"{name} has the payload type {type_!r}, not {PAYLOAD}")
            try:
                return Envelope.from_dict({"payload": payload, "payloadType": type_, "signatures": listed})
            except (ValueError, KeyError, TypeError) as error:
                raise IntegrityError(f"{name} cannot be read: {error}") from error
    raise IntegrityError(f"{name} is no envelope of payload, payloadType and signatures alone")


def _is_signature(value: object) -> bool:
    return (
        isinstance(value, dict) and value.keys() == {"keyid", "sig"} and all(isinstance(v, str) for v in value.values())
    )


def parse_statement(payload: bytes, kind: str) -> Statement:
    """Read an in-toto statement strictly. Raises IntegrityError if it has other fields or digests."""
    value = parse(payload, "the statement")
    if not isinstance(value, dict) or value.keys() != _FIELDS or value["_type"] != STATEMENT:
        raise IntegrityError("the payload is no in-toto statement v1")
    subjects: dict[str, str] = {}
    for entry in value["subject"] if isinstance(value["subject"], list) else ():
        match entry:
            case {"name": str(name), "digest": {"sha256": str(sha256), **others}} if (
                len(entry) == 2 and not others and name not in subjects and re.fullmatch("[0-9a-f]{64}", sha256)
            ):
                subjects[name] = f"sha256:{sha256}"
            case _:
                raise IntegrityError(f"a subject is not named once with a sha256 alone: {str(entry)[:120]}")
    predicate = value["predicate"]
    if not isinstance(predicate, dict) or not isinstance(predicate.get("buildDefinition", {}), dict):
        raise IntegrityError("the predicate of the statement is no object")
    return Statement(kind=kind, subjects=subjects, predicate_type=str(value["predicateType"]), predicate=predicate)


def parse(text: bytes, name: str) -> object:
    """Parse JSON in which no key stands twice and no number is NaN or infinite. Raises IntegrityError."""
    try:
        value: object = json.loads(
            text.decode(), object_pairs_hook=_take_once, parse_constant=_read_number, parse_float=_read_number
        )
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{name} cannot be read: {str(error)[:120]}") from error
    return value


def _take_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice")
    return value


def _read_number(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(f"{word} is no number")
    return value
