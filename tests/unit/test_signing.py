"""Keys, policies, and what must never be seen of a private key."""

import errno
import os
from pathlib import Path

import pytest
import yaml

from tests.command import Run
from tests.makers.publication import finish_build, publish
from toolkit import records
from toolkit.base import keys, signing
from toolkit.base.errors import IntegrityError, PreflightError, UsageError
from toolkit.base.keys import Signer
from toolkit.base.signing import Statement

STATEMENT = Statement(kind="run", subjects={"x": "sha256:" + "0" * 64}, predicate_type="x", predicate={})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    keys.make(tmp_path / "key")
    return tmp_path / "key"


def test_a_key_is_made_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a USB stick, whose file system refuses them."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    keys.make(tmp_path / "key")
    content = (tmp_path / "key").read_bytes()
    with pytest.raises(FileExistsError):
        keys._write_private(tmp_path / "key", b"other")
    assert (tmp_path / "key").read_bytes() == content
    assert {path.name for path in tmp_path.iterdir()} == {"key", "key.pub"}


def test_a_key_is_private_and_never_overwritten(key: Path) -> None:
    before = key.read_bytes()
    assert oct(key.stat().st_mode & 0o777) == "0o600"
    assert key.with_name("key.pub").read_text().startswith("-----BEGIN PUBLIC KEY-----")
    with pytest.raises(UsageError, match="exists"):
        keys.make(key)
    key.with_name("key.pub").rename(key.with_name("other.pub"))
    with pytest.raises(UsageError, match="exists"):
        keys.make(key.with_name("other"))
    assert key.read_bytes() == before
    assert not key.with_name("other").exists()
    with pytest.raises(PreflightError, match="cannot write"):
        keys.make(key / "key")
    assert {path.name for path in key.parent.iterdir()} == {"key", "other.pub"}


def test_a_key_of_a_variable_is_taken_from_it(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNING_KEY", key.read_text())
    signer = keys.load("env:SIGNING_KEY")
    assert "SIGNING_KEY" not in os.environ, "processes that it starts would inherit it"
    assert signer.public_key == keys.load(str(key)).public_key
    with pytest.raises(UsageError, match="the variable SIGNING_KEY is not set"):
        keys.load("env:SIGNING_KEY")


def test_only_a_key_that_can_sign_is_taken(key: Path, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa, x25519

    locked = serialization.BestAvailableEncryption(b"password")
    for made, lock in (
        (ed25519.Ed25519PrivateKey.generate(), locked),
        (rsa.generate_private_key(65537, 2048), serialization.NoEncryption()),
        (x25519.X25519PrivateKey.generate(), serialization.NoEncryption()),
    ):
        path = tmp_path / "made.pem"
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
        path.write_bytes(made.private_bytes(*form, lock))
        with pytest.raises(UsageError, match="is no private key that can sign"):
            keys.load(str(path))
    with pytest.raises(UsageError, match="is no private key that can sign"):
        keys.load(str(key.with_name("key.pub")))
    with pytest.raises(UsageError, match="cannot read the key"):
        keys.load(str(tmp_path / "none"))
    with pytest.raises(UsageError, match="given as an argument") as caught:
        keys.load(key.read_text())
    assert key.read_text().splitlines()[1] not in str(caught.value)


GOOD = {"name": "builder", "key": "key.pub", "may": ["wheel"]}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"signers": []}, "no list with at least one signer"),
        ({"signers": [GOOD], "requires": 1}, "it has requires; it can have signers"),
        ({"signer": [GOOD]}, "it has signer; it can have signers"),
        ({}, "it lacks signers"),
        ([GOOD], "neither a public key"),
        ({"signers": ["builder"]}, "a signer has a name"),
        ({"signers": [{**GOOD, "names": []}]}, "the signer builder has names; it can have name, key, may"),
        ({"signers": [{"name": "builder", "key": "key.pub"}]}, "the signer builder lacks may"),
        ({"signers": [{**GOOD, "may": ["wheel", "all"]}]}, "has all; it can have wheel, environment, image"),
        ({"signers": [{**GOOD, "may": []}]}, "a list of what it may sign"),
        ({"signers": [{**GOOD, "may": [{}]}]}, "has {}"),
    ],
)
def test_a_policy_says_who_may_sign_what_and_nothing_else(key: Path, value: object, why: str) -> None:
    path = key.with_name("policy.yaml")
    path.write_text(yaml.safe_dump(value))
    with pytest.raises(UsageError, match="is no policy") as caught:
        records.read_policy([path])
    assert why in caught.value.why


def test_a_policy_names_public_keys_beside_it(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = key.with_name("policy.yaml")
    path.write_text(yaml.safe_dump({"signers": [GOOD]}))
    (signatory,) = records.read_policy([path])
    assert (signatory.name, signatory.may) == ("builder", ("wheel",))
    (all_,) = records.read_policy([key.with_name("key.pub")])
    assert (all_.key, all_.may) == (signatory.key, records.list_signed())
    for name, message in (("key", "is not one public key"), ("none.pub", "cannot read the key")):
        path.write_text(yaml.safe_dump({"signers": [{**GOOD, "key": name}]}))
        with pytest.raises(UsageError, match=message):
            records.read_policy([path])
    for text in ("signers: [", "signers: [{name: x, key: key.pub, may: [run], may: [wheel]}]"):
        path.write_text(text)
        with pytest.raises(UsageError, match="is no policy"):
            records.read_policy([path])


def test_an_envelope_keeps_each_signature_of_one_statement(key: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.mkdir()
    keys.make(tmp_path / "other")
    first, second = (keys.load(str(tmp_path / name)) for name in ("key", "other"))
    assert signing.describe(record) == "none"
    signing.write(record, STATEMENT, first, replace=False)
    assert signing.is_signed(record, STATEMENT, first)
    assert not signing.is_signed(record, STATEMENT, second)
    signing.write(record, STATEMENT, second, replace=False)
    assert signing.is_signed(record, STATEMENT, first)
    changed = Statement(kind="run", subjects={}, predicate_type="x", predicate={})
    with pytest.raises(IntegrityError, match="has changed since it was signed"):
        signing.write(record, changed, first, replace=False)
    signing.write(record, changed, first, replace=True)
    assert not signing.is_signed(record, STATEMENT, second)
    signing.locate(record).write_text("{")
    assert "cannot be read" in signing.describe(record)


def test_a_private_key_is_written_nowhere_else(key: Path, tmp_path: Path) -> None:
    """Look for the key in all that commands print, start and write."""
    secret = key.read_text().splitlines()[1]
    place = tmp_path / "place"
    place.mkdir()
    toolkit = Run(place)
    publish(finish_build(place / "staging"), place / "dist")
    texts = []
    for words in (("sign", "dist", "--key", str(key)), ("sign", "dist", "--key", "env:KEY", "--verbose", "--json")):
        done = toolkit(*words, KEY=key.read_text())
        assert done.returncode == 0, done.stderr
        texts += [done.stdout, done.stderr, *toolkit.started]
    for words in (("verify", "dist", "--trust", str(key)), ("sign", "dist", "--key", key.read_text())):
        done = toolkit(*words)
        assert done.returncode == 2, done.stderr
        texts += [done.stdout, done.stderr]
    texts += [path.read_text(errors="replace") for path in place.rglob("*") if path.is_file()]
    raw = keys.load(str(key)).private_bytes.decode().splitlines()[1]
    assert raw == secret
    assert all(secret not in text for text in texts)


def sign_at_once(record: Path, signers: list[Signer]) -> None:
    """Let each signer sign in a process of its own, all in the same instant."""
    read, write = os.pipe()
    children = []
    for signer in signers:
        child = os.fork()
        if not child:
            try:
                os.close(write)
                os.read(read, 1)
                signing.write(record, STATEMENT, signer, replace=False)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    os.close(read)
    os.close(write)  # ends all reads
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


def test_keys_that_sign_in_the_same_instant_are_all_kept(tmp_path: Path) -> None:
    signers = []
    for name in ("first", "second", "third"):
        keys.make(tmp_path / name)
        signers.append(keys.load(str(tmp_path / name)))
    for number in range(6):
        record = tmp_path / f"run-{number}"
        record.mkdir()
        sign_at_once(record, signers)
        assert all(signing.is_signed(record, STATEMENT, signer) for signer in signers)
        assert [path.name for path in record.iterdir()] == [signing.ENVELOPE]
