"""Makes key pairs of ed25519 and P-256, and finds the key to sign with: in a file, in a variable or in an ssh-agent.

An agent hands out signatures and never a private key. It signs the given bytes as they are, so its signatures are those
of the same key in a file. Protocol: https://datatracker.ietf.org/doc/html/draft-ietf-sshm-ssh-agent.
"""

import base64
import hashlib
import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from toolkit import files
from toolkit.errors import PreflightError, UsageError
from train.system.files import read_regular

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from securesystemslib.signer import Signature, SSlibKey

Type = Literal["ed25519", "p256"]

SCHEMES: Final = ("ed25519", *(f"ecdsa-sha2-nistp{size}" for size in (256, 384, 521)))
"""How a key may sign, in the words of securesystemslib. ECDSA is there for programs that know no ed25519."""

OPENSSH: Final = (b"ssh-", b"ecdsa-sha2-")
"""How a public key begins that OpenSSH has written."""

_FROM_VARIABLE: Final = "env:"
_OF_AGENT: Final = "agent:"
_LIST: Final = 11
_LISTED: Final = 12
_SIGN: Final = 13
_SIGNED: Final = 14
_TYPE: Final = b"ssh-ed25519"
_LARGEST: Final = 1 << 20
"""Bytes of the largest answer of an agent that is read."""

_PATIENCE: Final = 120
"""Seconds for an agent's answer: it may ask its user to confirm."""


class Signer(Protocol):
    @property
    def public_key(self) -> "SSlibKey": ...

    def sign(self, payload: bytes) -> "Signature": ...


def make(path: Path, kind: Type = "ed25519") -> str:
    """Write a new key pair, the public key to ``PATH.pub``, and return its id.

    Raises UsageError if one of the files exists, PreflightError if they cannot be written.
    """
    from securesystemslib.signer import CryptoSigner

    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        if file.exists() or file.is_symlink():
            raise UsageError(f"{file} exists", why="a key is never overwritten", remedy="choose another name")
    made = CryptoSigner.generate_ed25519() if kind == "ed25519" else CryptoSigner.generate_ecdsa()
    try:
        _write_private(path, made.private_bytes)
    except OSError as error:
        raise PreflightError(
            f"cannot write {path}", why=error.strerror or str(error), remedy="choose another folder"
        ) from error
    files.write_atomically(public, _encode_public(made.private_bytes))
    return str(made.public_key.keyid)


def _write_private(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _publish(Path(name), path)
    finally:
        Path(name).unlink(missing_ok=True)


def _publish(new: Path, path: Path) -> None:
    """Give a file its name, unless that exists. Raises FileExistsError."""
    try:
        os.link(new, path)  # unlike a rename, it does not overwrite
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, as on a USB stick
        path.open("x").close()
        new.replace(path)


def _encode_public(private: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(private, None).public_key()
    encoded: bytes = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def load(text: str) -> Signer:
    """Read a private key from a file or, for ``env:NAME``, from a variable; or find one in an agent: ``agent:NAME``.

    The variable is removed, so that no process that this one starts inherits it. A key of an agent has the name of its
    comment or fingerprint; an empty name is for the only one. Raises UsageError if the key is missing, encrypted, or of
    no known kind, and PreflightError if the agent does not answer. No message has a part of the key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    if "PRIVATE KEY" in text:
        raise UsageError(
            "a key was given as an argument", why="every user can read arguments", remedy="give its file, or env:NAME"
        )
    if text.startswith(_OF_AGENT):
        return _find(text.removeprefix(_OF_AGENT))
    if text.startswith(_FROM_VARIABLE):
        content = os.environ.pop(text.removeprefix(_FROM_VARIABLE), "").encode(errors="replace")
    else:
        content = read_file(Path(text))
    signer: Signer | None
    try:
        signer = CryptoSigner(load_pem_private_key(content, None))
    except (TypeError, ValueError, UnsupportedAlgorithm):
        signer = None
    if signer is None or signer.public_key.scheme not in SCHEMES:
        raise UsageError(
            f"{text} is no private key that can sign",
            why="a key of ed25519, P-256, P-384 or P-521 is needed, in PEM (PKCS#8), without a password",
            remedy="`toolkit key new FILE` makes one",
        )
    return signer


def read_file(path: Path) -> bytes:
    try:
        return read_regular(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the key {str(path)[:300]}",
            why=getattr(error, "strerror", None) or str(error),
            remedy="give its file, or env:NAME",
        ) from error


def read_public(path: Path, content: bytes) -> "SSlibKey":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
    from securesystemslib.signer import SSlibKey

    openssh = content.lstrip().startswith(OPENSSH)
    load = load_ssh_public_key if openssh else load_pem_public_key
    count = len(content.strip().splitlines()) if openssh else content.count(b"-----BEGIN")
    try:
        key = SSlibKey.from_crypto(load(content))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if count != 1 or key is None or key.scheme not in SCHEMES:
        raise UsageError(
            f"{path} is not one public key",
            why="a key of ed25519, P-256, P-384 or P-521 is needed, in PEM or as OpenSSH writes it",
            remedy="give the file that ends in .pub",
        )
    return key


@dataclass(frozen=True)
class _AgentKey:
    blob: bytes  # the public key as SSH writes it
    comment: str  # most often user and host

    @property
    def fingerprint(self) -> str:
        return f"SHA256:{base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip('=')}"

    @property
    def public(self) -> "Ed25519PublicKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return Ed25519PublicKey.from_public_bytes(list(_split(self.blob))[1])

    def __str__(self) -> str:
        return f"{self.comment} ({self.fingerprint})"


class _AgentSigner:
    def __init__(self, key: _AgentKey) -> None:
        self._key = key

    @property
    def public_key(self) -> "SSlibKey":
        from securesystemslib.signer import SSlibKey

        return SSlibKey.from_crypto(self._key.public)

    def sign(self, payload: bytes) -> "Signature":
        from cryptography.exceptions import InvalidSignature
        from securesystemslib.signer import Signature

        answer = _ask(_SIGN, _join(self._key.blob, payload) + struct.pack(">I", 0), _SIGNED)
        try:
            _, value = _split(next(_split(answer)))
            self._key.public.verify(value, payload)
        except (ValueError, StopIteration, InvalidSignature) as error:
            raise _fail(f"its signature by {self._key} does not hold") from error
        return Signature(self.public_key.keyid, value.hex())


def _find(name: str) -> _AgentSigner:
    keys = _list_keys()
    matching = [key for key in keys if name in {"", key.comment, key.fingerprint}]
    if len(matching) != 1:
        raise UsageError(
            f"the ssh-agent has {len(matching) or 'no'} ed25519 key{'s' if matching else ''} of the name {name!r}",
            why=f"it has {', '.join(map(str, keys)) or 'none'}",
            remedy="name one: agent:COMMENT or agent:SHA256:...; `ssh-add FILE` adds one",
        )
    return _AgentSigner(matching[0])


def _list_keys() -> list[_AgentKey]:
    answer = _ask(_LIST, b"", _LISTED)
    try:
        parts = list(_split(answer[4:]))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return [_AgentKey(blob, comment.decode(errors="replace")) for blob, comment in pairs if _is_ed25519(blob)]
    except ValueError as error:
        raise _fail("its list of keys cannot be read") from error


def _is_ed25519(blob: bytes) -> bool:
    # Not split: in a certificate, numbers stand between the strings.
    head = _join(_TYPE) + struct.pack(">I", 32)
    return blob.startswith(head) and len(blob) == len(head) + 32


def _ask(kind: int, body: bytes, expected: int) -> bytes:
    address = os.environ.get("SSH_AUTH_SOCK")
    if not address:
        raise UsageError(
            "there is no ssh-agent", why="SSH_AUTH_SOCK is not set", remedy="start one, or give the file of a key"
        )
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(address)
            connection.sendall(struct.pack(">IB", 1 + len(body), kind) + body)
            (size,) = struct.unpack(">I", _receive(connection, 4))
            answer = _receive(connection, size) if 0 < size <= _LARGEST else b"\0"
    except OSError as error:
        raise _fail(error.strerror or str(error) or type(error).__name__) from error
    if answer[0] != expected:
        raise _fail("it refuses: it may be locked, or its user did not confirm")
    return answer[1:]


def _receive(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        if not (piece := connection.recv(size - len(content))):
            raise ConnectionError("the connection ended")
        content += piece
    return bytes(content)


def _fail(why: str) -> PreflightError:
    return PreflightError(
        "the ssh-agent does not answer as it should",
        why=why,
        remedy="look at `ssh-add -l`; if something was made already, `toolkit sign` signs it",
    )


def _join(*values: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(value)) + value for value in values)


def _split(content: bytes) -> Iterator[bytes]:
    """Yield the strings of a message. Raises ValueError if it ends within one."""
    while content:
        if len(content) < 4 or len(content) < (end := 4 + struct.unpack(">I", content[:4])[0]):
            raise ValueError("cut")
        yield content[4:end]
        content = content[end:]
