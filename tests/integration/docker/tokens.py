"""A token service for a registry: it takes a password, and signs tokens by the key of a certificate.

Format: https://distribution.github.io/distribution/spec/auth/jwt
"""

import base64
import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.integration.docker import https
from tests.server import QuietHandler, running

ISSUER: Final = "tests"
LEEWAY: Final = 60
"""Seconds for which the registry admits a token that has expired."""


@dataclass
class Service:
    keys: Path
    password: str = field(default_factory=lambda: f"canary{uuid.uuid4().hex}")
    lifetime: float = 300  # seconds
    realm: str = ""
    granted: list[tuple[str, str]] = field(default_factory=list)
    """Scope and token of each grant."""

    @property
    def authority(self) -> str:
        return (self.keys / "authority.pem").read_text()

    def answer(self, request: QuietHandler) -> None:
        login = base64.b64encode(f"user:{self.password}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {login}":
            request.answer(401, b'{"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}')
            return
        asked = {name: value for name, (value,) in parse_qs(urlsplit(request.path).query).items()}
        token = self.sign(asked["service"], asked["scope"])
        self.granted.append((asked["scope"], token))
        request.answer(200, json.dumps({"token": token}).encode())

    def sign(self, service: str, scope: str) -> str:
        now = int(time.time())
        kind, name, actions = scope.split(":")
        claims = {"iss": ISSUER, "sub": "user", "aud": service, "jti": uuid.uuid4().hex, "iat": now, "nbf": now - 3600}
        claims |= {"exp": now + int(self.lifetime)}
        claims |= {"access": [{"type": kind, "name": name, "actions": actions.split(",")}]}
        certificate = "".join(self.authority.splitlines()[1:-1])
        parts = [{"typ": "JWT", "alg": "RS256", "x5c": [certificate]}, claims]
        signed = ".".join(_encode(json.dumps(part).encode()) for part in parts)
        key = load_pem_private_key((self.keys / "key.pem").read_bytes(), password=None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return f"{signed}.{_encode(key.sign(signed.encode(), padding.PKCS1v15(), SHA256()))}"


@contextmanager
def serve(keys: Path) -> Iterator[Service]:
    """Start the service. ``keys``: a folder for its key and certificate."""
    found = Service(keys)

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            found.answer(self)

    with running(https.secure(ThreadingHTTPServer(("127.0.0.1", 0), Handler), keys)) as server:
        found.realm = f"https://127.0.0.1:{server.server_port}/token"
        yield found


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
