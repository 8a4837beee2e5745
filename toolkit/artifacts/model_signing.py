"""Signs a whole run as OpenSSF Model Signing does, and checks such signatures, also those of its own programs.

``model.sig`` is a Sigstore bundle with one DSSE envelope. Its statement lists each file of the folder with its digest,
so that a file that was added is found too. Formats: https://github.com/sigstore/model-transparency (predicate v1.0),
whose ``model_signing verify key`` is the test's other side, and https://docs.sigstore.dev/about/bundle/.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from toolkit import digest, files, signing
from toolkit.errors import IntegrityError, UsageError
from toolkit.findings import Finding, check
from toolkit.keys import Signer
from toolkit.signing import STATEMENT, Policy, Signatories, Statement

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

SIGNATURE: Final = signing.MODEL
PREDICATE: Final = "https://model_signing/signature/v1.0"
BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"

UNSIGNED: Final = (SIGNATURE, signing.ENVELOPE, ".git", ".gitattributes", ".github", ".gitignore")
"""Entries of the folder that are not signed: the signatures, and what ``model_signing`` leaves out by default."""

_METHOD: Final = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}


def describe(folder: Path, signed: Iterable[str] = ()) -> Statement:
    """Return the digests of all files of a folder, and of those of `UNSIGNED` that are in ``signed``.

    Raises IntegrityError if a file is no regular one.
    """
    left_out = set(UNSIGNED) - {PurePosixPath(name).parts[0] for name in signed if name}
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    names = sorted(path.relative_to(folder) for path in paths)
    signed_names = [name.as_posix() for name in names if name.parts[0] not in left_out and not _is_comment(name)]
    return Statement(
        kind="run",
        subjects=digest.read_files(folder, signed_names),
        predicate_type=PREDICATE,
        predicate={**_METHOD, "ignore_paths": list(UNSIGNED)},
    )


def _is_comment(name: Path) -> bool:
    """Return whether a file is a statement about the run, which may come after the run was signed."""
    return len(name.parts) == 1 and signing.find_comment(name.name) is not None


def is_signed(folder: Path, statement: Statement, signer: Signer) -> bool:
    """Return whether this key has signed these digests."""
    try:
        envelope, signed_statement = _read(folder)
    except IntegrityError:
        return False
    return dict(signed_statement.subjects) == dict(statement.subjects) and _holds(envelope, signer.public_key)


def write(folder: Path, statement: Statement, signer: Signer, *, replace: bool) -> None:
    """Sign the digests of a folder. Raises IntegrityError if there is another signature, and ``replace`` is off."""
    path = folder / SIGNATURE
    value = signing.seal(_encode(folder.resolve().name, statement), signer)
    value["signatures"][0]["keyid"] = ""  # the peer writes none: the hint below names the key
    material = {"publicKey": {"hint": _hint(signer.public_key)}, "tlogEntries": []}
    with files.changing(path):
        if not replace and (path.exists() or path.is_symlink()):
            raise IntegrityError(
                f"{path} is of other files or another key",
                why="such a file has one signature",
                remedy=f"find out why; `toolkit sign {folder} --model-signing --replace` signs what is there now",
            )
        files.write_json(path, {"mediaType": BUNDLE, "verificationMaterial": material, "dsseEnvelope": value})


def verify(folder: Path, policy: Policy) -> Finding:
    """Check the signature of a folder against all files that are there now."""
    try:
        envelope, signed_statement = _read(folder)
        signatories = _require_signatory(envelope, policy)
        signing.compare(signed_statement, describe(folder, signed_statement.subjects), whole=False)
    except IntegrityError as error:
        return check("signature", False, error.what)
    names = ", ".join(signatory.name for signatory in signatories)
    return check("signature", True, f"{names} signed {len(signed_statement.subjects)} files in {SIGNATURE}")


def list_signers(folder: Path, policy: Policy) -> Signatories:
    """Return the signatories who signed a run. Raises IntegrityError if none of them may sign runs."""
    return _require_signatory(_read(folder)[0], policy)


def _require_signatory(envelope: "Envelope", policy: Policy) -> Signatories:
    trusted = [signatory for signatory in policy if _holds(envelope, signatory.key)]
    if not trusted:
        raise IntegrityError(f"{SIGNATURE} is signed by no key that is trusted")
    return signing.require_allowed(trusted, "run")


def require_key(signer: Signer) -> None:
    """Raise UsageError if Model Signing knows no key of this kind."""
    if not signer.public_key.scheme.startswith("ecdsa-"):
        raise UsageError(
            "--model-signing needs a key of P-256, P-384 or P-521",
            why=f"OpenSSF Model Signing checks no signature of {signer.public_key.scheme}",
            remedy="`toolkit key new FILE --type p256` makes one",
        )


def _hint(key: "SSlibKey") -> str:
    return hashlib.sha256(key.keyval["public"].encode()).hexdigest()


def _encode(name: str, statement: Statement) -> bytes:
    """Return the statement as the peer writes it: one subject, and the files in the predicate."""
    method = dict(statement.predicate)
    pairs = [(name, value.removeprefix("sha256:")) for name, value in statement.subjects.items()]
    pairs.sort(key=lambda pair: PurePosixPath(pair[0]).parts)
    whole = hashlib.sha256(b"".join(bytes.fromhex(value) for _, value in pairs)).hexdigest()
    value = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": whole}}],
        "predicateType": PREDICATE,
        "predicate": {
            "serialization": method,
            "resources": [{"name": name, "algorithm": "sha256", "digest": value} for name, value in pairs],
        },
    }
    return json.dumps(value).encode()


def _read(folder: Path) -> tuple["Envelope", Statement]:
    """Read the signature of a folder, without a check of it. Raises IntegrityError if it is of another form."""
    match signing.read_json(folder / SIGNATURE):
        case {"mediaType": str(kind), "dsseEnvelope": {"signatures": [{"sig": sig}], **rest}} if kind == BUNDLE:
            named = rest | {"signatures": [{"keyid": "", "sig": sig}]}
        case _:
            raise IntegrityError(f"{SIGNATURE} is no bundle {BUNDLE} with one signature of an envelope")
    envelope = signing.parse_envelope(named, SIGNATURE)
    statement = signing.parse_statement(envelope.payload, "run")
    if statement.predicate_type != PREDICATE:
        raise IntegrityError(f"the statement is not of a signed model: {statement.predicate_type}")
    match statement.predicate:
        case {"serialization": dict(method), "resources": list(listed)} if _METHOD.items() <= method.items():
            return envelope, Statement(
                kind="run", subjects=_read_resources(listed), predicate_type=PREDICATE, predicate=method
            )
    raise IntegrityError(f"{SIGNATURE} does not list files by SHA-256 without links")


def _read_resources(listed: Iterable[Any]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for entry in listed:
        match entry:
            case {"name": str(name), "algorithm": "sha256", "digest": str(value)} if (
                name not in digests and digest.is_digest(f"sha256:{value}")
            ):
                digests[name] = f"sha256:{value}"
            case _:
                raise IntegrityError(f"a file is not named once with a sha256 alone: {str(entry)[:120]}")
    return digests


def _holds(envelope: "Envelope", key: "SSlibKey") -> bool:
    """Return whether the one signature, which names no key, is of this key."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import Signature

    (signature,) = envelope.signatures.values()
    named = {key.keyid: Signature(key.keyid, signature.signature)}
    return signing.holds(Envelope(envelope.payload, envelope.payload_type, named), key)
