"""Limits how long a connection may take to send the head of a request, which uvicorn does not."""

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS: Final = 10


class Connection(H11Protocol):
    """A connection that is closed if the head of its next request is not there in time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._calm()

    def _wait(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._calm()
        elif self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _calm(self) -> None:
        if self._patience:
            self._patience.cancel()
        self._patience = None
