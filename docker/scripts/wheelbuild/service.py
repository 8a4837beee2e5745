"""Asks a remote service whether it answers, before Bazel does, and again while Bazel waits for it."""

import socket
import ssl
from urllib.parse import urlsplit

SECONDS = 10
CALL_SECONDS = 60
"""Seconds in which Bazel wants the answer to a call of a cache. One that needs longer serves it nothing."""

_PORTS = {"grpc": 80, "grpcs": 443, "http": 80, "https": 443}
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4" + bytes(5)
"""What a client of HTTP/2 says first, with empty settings (RFC 9113, 3.4). The server answers with its own."""


def find_silence(url: str) -> str:
    """Return why a cache answers no call in time; empty if it does, or refuses connections, which costs no time."""
    trouble = find_trouble(url, seconds=CALL_SECONDS)
    return trouble if "timed out" in trouble else ""


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
            if parts.scheme.startswith("http"):
                _ask(stream, parts.hostname, parts.path, secure=parts.scheme == "https")
            else:
                _greet(stream, parts.hostname, secure=parts.scheme == "grpcs")
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return ""


def _ask(stream: socket.socket, host: str, path: str, *, secure: bool) -> None:
    """Ask a cache for a file that it has not; any answer will do. Raises OSError: there is none in time."""
    request = f"GET {path.rstrip('/')}/cas/{'0' * 64} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    if secure:
        # Nothing secret is sent, and nothing that comes back is used. Who answers does not matter.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            stream = context.wrap_socket(stream, server_hostname=host)
        except ssl.SSLError:
            return
    stream.sendall(request.encode())
    stream.recv(1)


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
