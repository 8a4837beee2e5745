"""Signs and reads heads of a log: notes with the size and the root of its tree, and the cosignatures of witnesses.

Formats of https://c2sp.org: `tlog-checkpoint`, a note as `signed-note` says, with signatures of ed25519, and
`tlog-cosignature` (version 1). A note's reader knows a key by its name and four bytes of a digest.
"""

import base64
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from toolkit.errors import IntegrityError, UsageError
from toolkit.keys import Signer
from toolkit.signing import Signatory

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

LARGEST: Final = 1 << 16
"""Bytes of the largest note that is read."""

NAME: Final = re.compile(r"[^\s+\x00-\x20]{1,200}")
"""Origins of logs and names of witnesses: the address of a page without ``https://`` is usual."""

SIGNED: Final = 1
COSIGNED: Final = 4
_DASH: Final = "\N{EM DASH} "
_TEXT: Final = re.compile(r"([^\n]+)\n(0|[1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n")
_LINE: Final = re.compile(_DASH + r"(\S+) ([A-Za-z0-9+/]+={0,2})")
_STAMPED: Final = struct.Struct(">Q64s")


@dataclass(frozen=True, kw_only=True)
class Head:
    origin: str  # name of the log
    size: int  # how many entries it has
    root: bytes  # of the tree over them

    @property
    def tree(self) -> tuple[int, bytes]:
        return self.size, self.root

    def encode(self) -> bytes:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n".encode()


@dataclass(frozen=True)
class Mark:
    """A signature in a note, of whatever kind."""

    name: str
    key: bytes  # the four bytes by which a reader knows the key
    value: bytes


@dataclass(frozen=True, kw_only=True)
class Note:
    head: Head
    marks: tuple[Mark, ...] = ()

    def encode(self) -> bytes:
        lines = [f"{_DASH}{each.name} {base64.b64encode(each.key + each.value).decode()}\n" for each in self.marks]
        return self.head.encode() + b"\n" + "".join(lines).encode()


@dataclass(frozen=True, kw_only=True)
class Cosignature:
    witness: Signatory
    name: str  # what the witness calls itself
    time: int  # seconds since 1970


def parse(content: bytes) -> Note:
    """Read a note. Raises IntegrityError: it is not exactly one, or has other lines than a head."""
    try:
        text, _, rest = content.decode().rpartition("\n\n")
    except UnicodeDecodeError:
        text = rest = ""
    found = _TEXT.fullmatch(f"{text}\n")
    lines = [_LINE.fullmatch(line) for line in rest.removesuffix("\n").split("\n")]
    if len(content) > LARGEST or not found or not rest.endswith("\n") or not all(lines):
        raise IntegrityError("the head of the log is no checkpoint of origin, size and root with signatures")
    marks = []
    for line in filter(None, lines):
        value = _decode(line[2])
        marks.append(Mark(line[1], value[:4], value[4:]))
    return Note(head=Head(origin=found[1], size=int(found[2]), root=_decode(found[3])), marks=tuple(marks))


def _decode(text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except ValueError:
        value = b""
    if len(value) < 5 or base64.b64encode(value).decode() != text:  # other letters must not mean the same
        raise IntegrityError("the head of the log has a value that is no base64")
    return value


def sign(head: Head, signer: Signer) -> Note:
    """Return a head with its log's signature. Raises UsageError: the key is not of ed25519."""
    raw = read_key(signer.public_key)
    value = bytes.fromhex(signer.sign(head.encode()).signature)
    return Note(head=head, marks=(Mark(head.origin, identify(head.origin, SIGNED, raw), value),))


def cosign(note: Note, name: str, signer: Signer, time: int) -> Note:
    """Add the cosignature of a witness, in place of its earlier ones. ``time``: in seconds since 1970.

    Raises UsageError: the key is not of ed25519.
    """
    key = identify(name, COSIGNED, read_key(signer.public_key))
    value = _STAMPED.pack(time, bytes.fromhex(signer.sign(_cosigned(note.head, time)).signature))
    others = (each for each in note.marks if (each.name, each.key) != (name, key))
    return replace(note, marks=(*others, Mark(name, key, value)))


def _cosigned(head: Head, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n".encode() + head.encode()


def require_signer(note: Note, signers: Iterable[Signatory]) -> Signatory:
    """Return who signed the head as its log. Raises IntegrityError: nobody who may, or a signature does not hold."""
    known = []
    for each in signers:
        if "log" not in each.may or each.key.scheme != "ed25519":
            continue
        known.append(each.name)
        key = identify(note.head.origin, SIGNED, read_key(each.key))
        marks = [mark for mark in note.marks if (mark.name, mark.key) == (note.head.origin, key)]
        if marks and all(_holds(each.key, note.head.encode(), mark.value) for mark in marks):
            return each
        if marks:
            raise IntegrityError(f"the signature of the head is not that of {each.name} for {note.head.origin}")
    asked = f"it may be of {', '.join(known)}" if known else "no ed25519 key of the policy may sign a `log`"
    raise IntegrityError(f"the head of {note.head.origin} is signed by no key that may sign a log: {asked}")


def list_cosignatures(note: Note, signers: Iterable[Signatory]) -> Iterator[Cosignature]:
    """Yield the cosignatures that hold. Raises IntegrityError: one of a known witness does not."""
    for each in signers:
        if "witness" not in each.may or each.key.scheme != "ed25519":
            continue
        raw = read_key(each.key)
        for mark in note.marks:
            if mark.key != identify(mark.name, COSIGNED, raw):
                continue
            time, value = _STAMPED.unpack(mark.value) if len(mark.value) == _STAMPED.size else (0, b"")
            if not _holds(each.key, _cosigned(note.head, time), value):
                raise IntegrityError(f"a cosignature of the head is not that of {each.name}")
            yield Cosignature(witness=each, name=mark.name, time=time)


def _holds(key: "SSlibKey", content: bytes, value: bytes) -> bool:
    from securesystemslib.exceptions import UnverifiedSignatureError
    from securesystemslib.signer import Signature

    try:
        key.verify_signature(Signature(key.keyid, value.hex()), content)
    except UnverifiedSignatureError:
        return False
    return True


def read_key(key: "SSlibKey") -> bytes:
    """Return the 32 bytes of a public key. Raises UsageError: it is not of ed25519."""
    if key.scheme != "ed25519":
        raise UsageError(
            "heads of a log are signed by ed25519 alone",
            why=f"the key is of {key.scheme}",
            remedy="`toolkit key new FILE` makes one",
        )
    return bytes.fromhex(key.keyval["public"])


def identify(name: str, kind: int, raw: bytes) -> bytes:
    """Return the four bytes by which the readers of notes know a key. ``kind``: 1 for a log, 4 for a witness."""
    return hashlib.sha256(f"{name}\n".encode() + bytes([kind]) + raw).digest()[:4]


def describe_key(name: str, key: "SSlibKey", kind: int = SIGNED) -> str:
    """Return a public key as other programs take it to check notes: a `vkey`."""
    raw = read_key(key)
    return f"{name}+{identify(name, kind, raw).hex()}+{base64.b64encode(bytes([kind]) + raw).decode()}"


def require_name(name: str) -> None:
    """Raise UsageError if this cannot be the name of a log or a witness in a note."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} is no name for a signature of a head",
            why="it has 1 to 200 characters, and no space or +",
            remedy="the address of a page without https:// is usual, such as example.org/builds",
        )
