import base64
import hashlib

from wheelbuild.trust import PASSWORD, compose_store


def test_a_store_has_each_certificate_of_a_bundle_and_a_digest() -> None:
    certificates = [b"one", b"another one"]
    blocks = (base64.b64encode(each).decode() for each in certificates)
    bundle = "".join(f"# name\n-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n" for text in blocks)
    store = compose_store(bundle)
    assert store.startswith(bytes.fromhex("feedfeed 00000002 00000002 00000002"))
    for number, each in enumerate(certificates):
        alias = f"ca{number}".encode()
        entry = b"\0\3" + alias + bytes(8) + b"\0\5X.509" + len(each).to_bytes(4, "big") + each
        assert entry in store
    key = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite"
    assert hashlib.sha1(key + store[:-20]).digest() == store[-20:]  # noqa: S324
