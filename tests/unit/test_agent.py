"""Keys of an ssh-agent: of the real program, and of one that misbehaves."""

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from toolkit import artifacts, keys, signing
from toolkit.errors import PreflightError, UsageError
from toolkit.signing import Statement

STATEMENT = Statement(kind="run", subjects={"x": "sha256:" + "0" * 64}, predicate_type="x", predicate={})
PRIVATE = Ed25519PrivateKey.generate()
BLOB = keys._join(b"ssh-ed25519", PRIVATE.public_key().public_bytes_raw())
# A certificate has numbers between its strings.
CERTIFICATE = keys._join(b"ssh-ed25519-cert-v01@openssh.com", b"nonce", b"k" * 32) + bytes(7) + b"\1"
LIST = struct.pack(">BI", 12, 2) + keys._join(CERTIFICATE, b"me@here", BLOB, b"me@here")


@contextmanager
def serve(path: Path, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """Answer each request, given as its type and body, on a socket as an agent does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def work() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
                    if size == 0:
                        return
                    connection.sendall(answer(connection.recv(size, socket.MSG_WAITALL)))

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
                last.sendall(struct.pack(">I", 0))
            thread.join()


def frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def sign(request: bytes) -> bytes:
    _, data = keys._split(request[1:-4])
    return make_answer(data)


def make_answer(data: bytes) -> bytes:
    return b"\x0e" + keys._join(keys._join(b"ssh-ed25519", PRIVATE.sign(data)))


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    return tmp_path / "agent"


def test_agent_signs_as_the_same_key_in_a_file(address: Path, tmp_path: Path) -> None:
    encoded = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (tmp_path / "id.pub").write_bytes(PRIVATE.public_key().public_bytes(*encoded) + b" me@here\n")
    (tmp_path / "record").mkdir()
    with serve(address, lambda request: frame(LIST if request == b"\x0b" else sign(request))):
        for name in ("", "me@here", keys._list_keys()[0].fingerprint):
            signing.write(tmp_path / "record", STATEMENT, keys.load(f"agent:{name}"), replace=True)
    policy = artifacts.read_policy([tmp_path / "id.pub"])
    assert signing.verify(tmp_path / "record", STATEMENT, policy).state == "ok"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda request: frame(b"\x05"), "it refuses"),
        (lambda request: b"", "the connection ended"),
        (lambda request: frame(sign(request))[:-1], "the connection ended"),
        (lambda request: struct.pack(">I", 1 << 31), "it refuses"),
        (lambda request: frame(make_answer(b"something else")), "does not hold"),
        (lambda request: frame(sign(request)[:-1]), "does not hold"),
        (lambda request: frame(b"\x0e"), "does not hold"),
    ],
)
def test_agent_that_gives_no_signature_is_named(
    address: Path, tmp_path: Path, answer: Callable[[bytes], bytes], why: str
) -> None:
    with (
        serve(address, lambda request: frame(LIST) if request == b"\x0b" else answer(request)),
        pytest.raises(PreflightError, match="the ssh-agent does not answer as it should") as found,
    ):
        signing.write(tmp_path, STATEMENT, keys.load("agent:"), replace=True)
    assert why in found.value.why
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize(
    "listed",
    [
        struct.pack(">BI", 12, 0),
        struct.pack(">BI", 12, 2) + 2 * LIST[5:],
        struct.pack(">BI", 12, 1) + keys._join(keys._join(b"ssh-ed25519"), b"without a key"),
        struct.pack(">BI", 12, 1) + keys._join(keys._join(b"ssh-ed25519", b"short"), b"me@here"),
    ],
)
def test_which_key_is_meant_must_be_clear(address: Path, listed: bytes) -> None:
    with serve(address, lambda _: frame(listed)), pytest.raises(UsageError, match="ed25519 key"):
        keys.load("agent:")


def test_without_an_agent_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(UsageError, match="there is no ssh-agent"):
        keys.load("agent:")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    with pytest.raises(PreflightError, match="does not answer"):
        keys.load("agent:")


@pytest.mark.engine
@pytest.mark.skipif(
    not (shutil.which("ssh-agent") or os.environ.get("TOOLKIT_REQUIRE_ENGINE")), reason="there is no ssh-agent"
)
def test_the_real_agent_signs(address: Path, tmp_path: Path) -> None:
    """The marker is for CI, which installs the program."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me@here", "-f", str(tmp_path / "id")]
    subprocess.run(argv, check=True)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(address)], stdout=subprocess.DEVNULL)
    try:
        while not address.exists():
            assert agent.poll() is None
        subprocess.run(["ssh-add", "-q", str(tmp_path / "id")], check=True, env=dict(os.environ))
        (tmp_path / "id").unlink()
        signing.write(tmp_path, STATEMENT, keys.load("agent:me@here"), replace=True)
        policy = artifacts.read_policy([tmp_path / "id.pub"])
        assert signing.verify(tmp_path, STATEMENT, policy).state == "ok"
        subprocess.run(["ssh-add", "-q", "-D"], check=True, env=dict(os.environ))
        with pytest.raises(UsageError, match="no ed25519 key"):
            keys.load("agent:me@here")
    finally:
        agent.terminate()
        agent.wait()
