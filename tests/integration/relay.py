"""A socket between a client and a server that a test can listen at and cut, as if the server died."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Relay:
    """``connect`` reaches the server; ``hear`` and ``answer`` get what client and server say before it goes on."""

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[], socket.socket],
        hear: Callable[[bytes], object] = len,
        answer: Callable[[bytes], object] = len,
    ) -> None:
        self._listener, self._connect, self._hear, self._answer = listener, connect, hear, answer
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close everything for good."""
        for end in (self._listener, *self._open):
            _shut(end)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        try:
            server = self._connect()
        except OSError:
            client.close()
            return
        self._open += [client, server]
        threading.Thread(target=_pass_on, args=(server, client, self._answer), daemon=True).start()
        _pass_on(client, server, self._hear)


def _pass_on(source: socket.socket, target: socket.socket, hear: Callable[[bytes], object]) -> None:
    try:
        while data := source.recv(1 << 16):
            hear(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # The other end must hear of it: a client of a dead server would wait.
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
