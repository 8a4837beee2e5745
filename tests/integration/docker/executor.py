"""A server that keeps the headers of a remote executor's first call (HTTP/2, RFC 9113 and 7541) and refuses it."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

from tests.integration.docker import stages

_PREFACE = 24
_HEADERS, _SETTINGS, _PING = 1, 4, 6
_ACKNOWLEDGED, _END_STREAM, _END_HEADERS = 1, 1, 4
UNAUTHENTICATED = "16"


class Executor:
    """A listener that refuses every call until it is closed; ``heard`` has the headers of each call."""

    def __init__(self, address: str) -> None:
        self._listener = socket.create_server((address, 0))
        self.url = f"grpc://{address}:{self._listener.getsockname()[1]}"
        self.heard: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening; closing alone would leave the kernel listening for the thread in accept."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), client, client.makefile("rb") as stream:
            if len(stream.read(_PREFACE)) < _PREFACE:
                return  # a client that only tested whether the port is open
            client.sendall(_frame(_SETTINGS, 0, 0))
            while True:
                length, kind, flags, number = struct.unpack(">I", b"\0" + stream.read(3)) + struct.unpack(
                    ">BBI", stream.read(6)
                )
                payload = stream.read(length)
                if kind in {_SETTINGS, _PING} and not flags & _ACKNOWLEDGED:
                    client.sendall(_frame(kind, _ACKNOWLEDGED, 0, payload if kind == _PING else b""))
                elif kind == _HEADERS:
                    self.heard.append(payload)
                    answer = b"\x88" + _field("content-type", "application/grpc")  # 0x88 is `:status: 200`
                    answer += _field("grpc-status", UNAUTHENTICATED) + _field("grpc-message", "not with that name")
                    client.sendall(_frame(_HEADERS, _END_STREAM | _END_HEADERS, number, answer))


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _field(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


@contextlib.contextmanager
def serve() -> Iterator[Executor]:
    executor = Executor(stages.find_gateway())
    try:
        yield executor
    finally:
        executor.close()
