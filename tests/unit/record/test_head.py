"""Heads of a log as signed notes: the example of the format's first implementation, and what is refused."""

import base64
import contextlib
import hashlib
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.signer import CryptoSigner, SSlibKey

from toolkit.errors import IntegrityError, UsageError
from toolkit.record import head
from toolkit.record.head import Head, Note
from toolkit.signing import Signatory

# The key and the note of the documentation of golang.org/x/mod/sumdb/note.
VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
SIGNATURE = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
TEXT = b"If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"

HEAD = Head(origin="example.org/builds", size=3, root=bytes(range(32)))


def make() -> tuple[CryptoSigner, Signatory]:
    signer = CryptoSigner.generate_ed25519()
    return signer, Signatory(name="owner", key=signer.public_key, may=("log", "witness"))


def test_keys_and_signatures_are_those_of_the_known_example() -> None:
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    public = SSlibKey.from_crypto(key.public_key())
    assert head.describe_key("PeterNeumann", public) == VKEY
    marked = base64.b64decode(SIGNATURE)
    assert head.identify("PeterNeumann", head.SIGNED, head.read_key(public)) == marked[:4]
    assert key.sign(TEXT) == marked[4:]


def test_a_head_is_a_note_that_anyone_can_check() -> None:
    signer, owner = make()
    text, _, line = head.sign(HEAD, signer).encode().decode().partition("\n\n")
    assert text == f"example.org/builds\n3\n{base64.b64encode(HEAD.root).decode()}"
    dash, name, mark = line.split()
    raw = head.read_key(owner.key)
    value = base64.b64decode(mark)
    assert (dash, name) == ("\N{EM DASH}", "example.org/builds")
    assert value[:4] == hashlib.sha256(b"example.org/builds\n\x01" + raw).digest()[:4]
    Ed25519PublicKey.from_public_bytes(raw).verify(value[4:], f"{text}\n".encode())
    assert head.require_signer(head.parse(head.sign(HEAD, signer).encode()), [owner]) == owner


def test_a_cosignature_is_that_of_the_specification() -> None:
    (signer, _), (other, witness) = make(), make()
    note = head.cosign(head.sign(HEAD, signer), "example.org/witness", other, 1679315147)
    line = note.encode().decode().splitlines()[-1]
    value = base64.b64decode(line.split()[2])
    raw = head.read_key(witness.key)
    assert value[:4] == hashlib.sha256(b"example.org/witness\n\x04" + raw).digest()[:4]
    assert int.from_bytes(value[4:12]) == 1679315147
    said = b"cosignature/v1\ntime 1679315147\n" + HEAD.encode()
    Ed25519PublicKey.from_public_bytes(raw).verify(value[12:], said)
    (found,) = head.list_cosignatures(head.parse(note.encode()), [witness])
    assert (found.name, found.time) == ("example.org/witness", 1679315147)
    again = head.cosign(note, "example.org/witness", other, 1679315148)
    assert [each.time for each in head.list_cosignatures(again, [witness])] == [1679315148]


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(IntegrityError):
        head.parse(content)


@given(st.integers(0, 10**15), st.binary(min_size=32, max_size=32), st.data())
def test_what_is_written_is_read(size: int, root: bytes, data: st.DataObject) -> None:
    note = head.sign(Head(origin="example.org/builds", size=size, root=root), CryptoSigner.generate_ed25519())
    content = note.encode()
    assert head.parse(content) == note
    place = data.draw(st.integers(0, len(content) - 1))
    changed = (
        content[:place] + bytes([content[place] ^ data.draw(st.sampled_from([1, 2, 8, 32]))]) + content[place + 1 :]
    )
    with contextlib.suppress(IntegrityError):
        assert head.parse(changed) != note


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n3\n", b"\n03\n"),
        (b"\n3\n", b"\n-3\n"),
        (b"\n3\n", b"\n3\nan extension\n"),
        (b"=\n\n", b"=\n"),
        (b"\xe2\x80\x94 ", b"- "),
        (b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9="),
    ],
)
def test_a_head_in_another_form_is_refused(old: bytes, new: bytes) -> None:
    content = head.sign(HEAD, make()[0]).encode()
    assert old in content
    with pytest.raises(IntegrityError):
        head.parse(content.replace(old, new, 1))


def test_a_signature_of_another_head_or_key_is_refused() -> None:
    (signer, owner), (_, other) = make(), make()
    note = head.sign(HEAD, signer)
    with pytest.raises(IntegrityError, match="is signed by no key that may sign a log: it may be of other"):
        head.require_signer(note, [replace(other, name="other")])
    with pytest.raises(IntegrityError, match="no ed25519 key of the policy may sign a `log`"):
        head.require_signer(note, [replace(owner, may=("witness",))])
    with pytest.raises(IntegrityError, match="is not that of owner"):
        head.require_signer(Note(head=replace(HEAD, size=4), marks=note.marks), [owner])
    cosigned = head.cosign(note, "w", signer, 5)
    with pytest.raises(IntegrityError, match="a cosignature of the head is not that of owner"):
        list(head.list_cosignatures(Note(head=replace(HEAD, size=4), marks=cosigned.marks), [owner]))


def test_only_ed25519_signs_heads() -> None:
    with pytest.raises(UsageError, match="ed25519 alone"):
        head.sign(HEAD, CryptoSigner.generate_ecdsa())


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "x" * 201])
def test_a_name_that_a_note_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no name"):
        head.require_name(name)
