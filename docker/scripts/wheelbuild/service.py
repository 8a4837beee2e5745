"""Whether a remote service answers, asked before Bazel does, and again while Bazel waits for it."""

import socket
import ssl
from urllib.parse import urlsplit

SECONDS = 10
_PORTS = {"grpc": 80, "grpcs": 443}
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5)
"""What a client of HTTP/2 says first, with empty settings (RFC 9113, 3.4). The server answers with its own."""


def find_trouble(url: str, *, seconds: float = SECONDS) -> str:
    """Return why the server at a URL such as ``grpcs://host:port`` says nothing to a new client; empty if it does.

    A connection alone proves nothing, because the kernel takes them for a frozen server too.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return ""
    try:
        address = parts.hostname, parts.port or _PORTS[parts.scheme]
        with socket.create_connection(address, timeout=seconds) as stream:
            _greet(stream, parts.hostname, secure=parts.scheme == "grpcs")
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return ""


def _greet(stream: socket.socket, host: str, *, secure: bool) -> None:
    """Wait for a first word of the server. Raises OSError: there is none in time."""
    if not secure:
        stream.sendall(_HELLO)
        if not stream.recv(1):
            raise ConnectionError("it closed the connection without a word")
        return
    try:
        ssl.create_default_context().wrap_socket(stream, server_hostname=host).close()
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):  # the latter before Python 3.11.4
        raise
    except ssl.SSLError:
        return  # a server that is not trusted, or does not trust, answers too
