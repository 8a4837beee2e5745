"""Collects the images of several requests into batches, and computes one batch after the other in one thread.

The bits of an answer do not depend on the batch, see ``train.use.network``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from train.service.metrics import Metrics
from train.service.reading import Refusal

Image = NDArray[np.uint8]
Shares = NDArray[np.float64]
Value = TypeVar("Value")

AGAIN: Final = 1
"""Seconds after which a client may try again if the queue is full."""


@dataclass(kw_only=True)
class Batches:
    """The queue of images. All of its functions run in the thread of the event loop."""

    compute: Callable[[NDArray[np.uint8]], Shares]  # images of bytes to probabilities, in a thread
    metrics: Metrics
    size: int  # most images of a batch
    wait: float  # seconds that the first image of a batch waits for others
    limit: int  # most images that wait
    _waiting: "deque[tuple[Image, asyncio.Future[Shares]]]" = field(default_factory=deque)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "compute"))
    _task: "asyncio.Task[None] | None" = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def classify(self, images: Sequence[Image]) -> list[Shares]:
        """Return the probabilities of each image. Raises a Refusal if the queue has no place for all of them."""
        self.require_place(len(images))
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._work())
        futures = [loop.create_future() for _ in images]
        self._waiting.extend(zip(images, futures, strict=True))
        self.metrics.waiting = len(self._waiting)
        self._news.set()
        try:
            return list(await asyncio.gather(*futures))
        finally:
            for future in futures:  # a request that has ended needs no answer
                future.cancel()

    def require_place(self, count: int) -> None:
        if len(self._waiting) + count > self.limit:
            raise Refusal(
                503,
                f"{len(self._waiting)} images wait already, and {self.limit} are the most",
                remedy="try again later, or send fewer images at a time",
                again=AGAIN,
            )

    async def run(self, function: Callable[[], Value]) -> Value:
        """Run a function in the thread that computes, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            await self._collect()
            count = min(self.size, len(self._waiting))
            waiting = [self._waiting.popleft() for _ in range(count)]
            self.metrics.waiting = len(self._waiting)
            batch = [(image, future) for image, future in waiting if not future.done()]
            if batch:
                await self._answer([image for image, _ in batch], [future for _, future in batch])

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.wait
        while len(self._waiting) < self.size and (left := end - loop.time()) > 0:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                return

    async def _answer(self, images: list[Image], futures: "list[asyncio.Future[Shares]]") -> None:
        stacked: Any = np.stack(images)
        try:
            shares = await self.run(lambda: self.compute(stacked))
        except Exception as error:  # noqa: BLE001 - the requests get it, and the next batch may succeed
            for future in futures:
                if not future.done():
                    future.set_exception(error)
            return
        self.metrics.note_batch(len(images))
        for future, share in zip(futures, shares, strict=True):
            if not future.done():
                future.set_result(share)
