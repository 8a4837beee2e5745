"""Write certificates as a store that Bazel's Java reads.

The format is Java's own, JKS: a list of certificates and a digest of it. OpenSSL can write the newer PKCS 12, but
marks certificates as trusted for Java from 3.2 on only, and Debian 12 has 3.0.
"""

import hashlib
import re
import ssl
import struct

PASSWORD = "toolkit"  # noqa: S105 -- it protects nothing: Java wants one
_HEAD = 0xFEEDFEED, 2
_CERTIFICATE = 2
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def compose_store(bundle: str) -> bytes:
    """Return the store for a bundle in PEM."""
    found = [ssl.PEM_cert_to_DER_cert(text) for text in _PEM.findall(bundle)]
    body = struct.pack(">3I", *_HEAD, len(found))
    for number, certificate in enumerate(found):
        body += struct.pack(">I", _CERTIFICATE) + _pack(f"ca{number}") + bytes(8) + _pack("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()  # noqa: S324


def _pack(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()
