"""An https server whose authority no client knows, like a proxy of a company."""

import http.server
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.integration.docker import stages
from tests.server import running


@contextmanager
def serve(folder: Path, keys: Path) -> Iterator[str]:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    address = stages.find_gateway()
    with running(secure(http.server.ThreadingHTTPServer((address, 0), handler), keys)) as server:
        yield f"https://{address}:{server.server_port}"


def secure(server: http.server.ThreadingHTTPServer, keys: Path) -> http.server.ThreadingHTTPServer:
    """Give a server a certificate of its own, which ``keys`` gets with its key."""
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"]
    openssl += ["-addext", f"subjectAltName=IP:{server.server_address[0]!s}", "-keyout", str(keys / "key.pem")]
    subprocess.run([*openssl, "-out", str(keys / "authority.pem")], capture_output=True, check=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "authority.pem", keys / "key.pem")
    # Shake hands in the thread of the request: otherwise one silent client would block all others.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return server
