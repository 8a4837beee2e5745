"""Makes key pairs of ed25519 and P-256, and reads the key to sign with from a file or a variable."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

from toolkit.base import files, programs
from toolkit.base.errors import PreflightError, UsageError
from train.system.files import read_regular

if TYPE_CHECKING:
    from securesystemslib.signer import Signature, SSlibKey

Type = Literal["ed25519", "p256"]

SCHEMES: Final = ("ed25519", *(f"ecdsa-sha2-nistp{size}" for size in (256, 384, 521)))
"""How a key may sign, in the words of securesystemslib. ECDSA is there for programs that know no ed25519."""

OPENSSH: Final = (b"ssh-", b"ecdsa-sha2-")
"""How a public key begins that OpenSSH has written."""

_FROM_VARIABLE: Final = "env:"


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


def shorten(identity: str) -> str:
    """Return as much of a key's id as two people compare: 128 bits, so that nobody finds another key with the same."""
    return identity[:32]


def would_be_published(path: Path) -> bool:
    """Return whether a file lies in a git work tree, and nothing keeps ``git add .`` from taking it."""
    try:
        found = programs.git("check-ignore", "--quiet", path.name, folder=path.absolute().parent).run(seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 1  # 128: there is no work tree


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
    """Read a private key from a file or, for ``env:NAME``, from a variable.

    The variable is removed, so that no process that this one starts inherits it. Raises UsageError if the key is
    missing, encrypted, or of no known kind, and PreflightError if others can read it. No message has a part of the key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.signer import CryptoSigner

    if "PRIVATE KEY" in text:
        raise UsageError(
            "a key was given as an argument", why="every user can read arguments", remedy="give its file, or env:NAME"
        )
    if text.startswith(_FROM_VARIABLE):
        name = text.removeprefix(_FROM_VARIABLE)
        content = os.environ.pop(name, "").encode(errors="replace")
        if not content:
            raise UsageError(
                f"the variable {name} is not set, or is empty",
                why=f"{text} asks for the private key in it",
                remedy="a CI service gives a step only the secrets that its `env` names",
            )
    else:
        content = read_file(Path(text), "give the file of a private key, or env:NAME")
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
    if not text.startswith(_FROM_VARIABLE):
        _require_private(Path(text))
    return signer


def _require_private(path: Path) -> None:
    """Raise PreflightError if other users may read or change a key of this user, as ssh does."""
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o077:
        raise PreflightError(
            f"the key {path} is not private",
            why=f"other users may read or change it: its mode is {stat.S_IMODE(status.st_mode):o}",
            remedy=f"if nobody has read it, `chmod 600 {path}`; else make another by `toolkit key new`. Where files "
            "have no modes, give env:NAME",
        )


def read_file(path: Path, remedy: str = "give the file of a public key, or correct the name in the policy") -> bytes:
    try:
        return read_regular(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read the key {str(path)[:300]}",
            why=getattr(error, "strerror", None) or str(error),
            remedy=remedy,
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
