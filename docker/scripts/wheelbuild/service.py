"""Whether a remote service can be reached at all, asked before Bazel does."""

import socket
from urllib.parse import urlsplit

SECONDS = 10
_PORTS = {"grpc": 80, "grpcs": 443}


def find_trouble(url: str, *, seconds: float = SECONDS) -> str:
    """Return why nothing answers at a URL such as ``grpcs://host:port``; empty if something does."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return ""
    try:
        address = parts.hostname, parts.port or _PORTS[parts.scheme]
        socket.create_connection(address, timeout=seconds).close()
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return ""
