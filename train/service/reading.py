"""Reads the images of a request, as multipart files or as base64 in JSON, within limits, and decodes them.

A request that is not accepted raises a :class:`Refusal`, of which the server makes its answer.
"""

import asyncio
import base64
import binascii
import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from train.data import images
from train.errors import DataError
from train.record.reader import Inputs
from train.system.memory import return_free


class Refusal(Exception):  # noqa: N818 - an answer, not a failure of the server
    """Why a request gets no predictions: the status of HTTP, what is wrong, the cause, and what to do next."""

    def __init__(self, status: int, what: str, *, why: str = "", remedy: str = "", again: int = 0) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.why = why
        self.remedy = remedy
        self.again = again  # seconds after which the client may try again; 0 if that would not help


LONGEST: Final = 200
"""Number of characters that are kept of a file's name."""

MULTIPART: Final = "multipart/form-data"
JSON: Final = "application/json"


LARGE: Final = 1_000_000
"""An image with as many pixels gives its memory back to the machine when it is decoded."""


class PixelBudget:
    """Bounds the pixels that are decoded at once, by threads that wait for each other.

    An image takes up to 8 bytes a pixel while it is decoded, whatever the size of its file.
    """

    def __init__(self, most: int) -> None:
        self._most, self._used, self._grown = most, 0, False
        self._changed = threading.Condition()

    @contextmanager
    def hold(self, pixels: int) -> Iterator[None]:
        """Wait until so many pixels fit, and reserve them. An image that exceeds the whole budget is decoded alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + pixels <= self._most)
            self._used += pixels
            self._grown |= pixels >= LARGE
        try:
            yield
        finally:
            with self._changed:
                self._used -= pixels
                self._changed.notify_all()

    def settle(self) -> None:
        """Give the memory of large images back, if none is being decoded."""
        with self._changed:
            grown, self._grown = self._grown and not self._used, self._grown and bool(self._used)
        if grown:
            return_free()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a request: its size, its number of images and their pixels."""

    bytes: int
    pixels: int  # of an image
    images: int  # of a request
    seconds: float  # for its body, and again for its answer


class Upload(NamedTuple):
    name: str
    content: bytes


class _InMemory(MultiPartParser):
    spool_max_size = 1 << 62  # the body is in memory already


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Return the files of a request. Raises a Refusal if it is too large, too slow, or of another form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in {MULTIPART, JSON}:
        raise Refusal(
            415,
            f"the content is {kind or 'of no type'}",
            why=f"the server takes {MULTIPART} and {JSON}",
            remedy="curl --form image=@photo.jpg ADDRESS/predictions",
        )
    body = await _read_body(request, limits)
    if kind == JSON:
        uploads = await asyncio.to_thread(_read_json, body, limits)
    else:
        uploads = await _read_form(request.headers, body, limits)
    if not uploads:
        raise Refusal(422, "the request holds no image", remedy="send at least one file")
    return uploads


async def _read_body(request: Request, limits: Limits) -> bytes:
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > 2 * limits.bytes:
        raise _refuse_bytes(limits)
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > 2 * limits.bytes:
                    break
                # If it is only a little too large, the rest is read too, or the client might not see the answer.
                if size > limits.bytes:
                    body.clear()
                else:
                    body += chunk
    except TimeoutError:
        raise Refusal(408, f"the content was not here within {limits.seconds:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "the connection was closed") from None
    if size > limits.bytes:
        raise _refuse_bytes(limits)
    return bytes(body)


def _refuse_bytes(limits: Limits) -> Refusal:
    return Refusal(413, f"a request may have {limits.bytes:,} bytes", remedy="send fewer or smaller images at a time")


def _refuse_count(limits: Limits) -> Refusal:
    return Refusal(413, f"a request may have {limits.images} images", remedy="send fewer images at a time")


async def _read_form(headers: Headers, body: bytes, limits: Limits) -> list[Upload]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = _InMemory(headers, stream(), max_files=limits.images, max_fields=limits.images)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        if error.message.startswith("Too many"):
            raise _refuse_count(limits) from None
        raise Refusal(400, "the form cannot be read", why=error.message) from None
    except (KeyError, ValueError, LookupError) as error:
        raise Refusal(400, "the form cannot be read", why=str(error)) from None
    uploads = []
    for name, value in form.multi_items():
        if not isinstance(value, UploadFile):
            raise _refuse_text(name, value)
        uploads.append(Upload(_require_name(value.filename or name), await value.read()))
        await value.close()
    return uploads


def _require_name(name: str) -> str:
    """Return the part of a name that is kept. Raises a Refusal for a lone surrogate, which nothing can encode."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Refusal(422, f"the name {name[:LONGEST]!r} is no text", remedy="send names in UTF-8") from None
    return name[:LONGEST]


def _refuse_text(name: str, value: str) -> Refusal:
    if _is_address(value):
        return _refuse_address()
    return Refusal(
        422, f"the part {name[:LONGEST]!r} is a text", remedy="send files; curl does so by --form image=@photo.jpg"
    )


def _is_address(text: str) -> bool:
    return text.lstrip()[:8].lower().startswith(("http:", "https:", "ftp:", "file:"))


def _refuse_address() -> Refusal:
    return Refusal(
        422,
        "an address is not fetched",
        why="the server opens no connection, so that nobody can make it fetch what only it can reach",
        remedy="fetch the image, and send its bytes",
    )


def _read_json(body: bytes, limits: Limits) -> list[Upload]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the content is not JSON", why=str(error)) from None
    listed = value.get("images") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise Refusal(422, "the object has no list of images", remedy='send {"images": [{"content": "BASE64"}]}')
    if len(listed) > limits.images:
        raise _refuse_count(limits)
    return [_read_entry(entry, number) for number, entry in enumerate(listed, start=1)]


def _read_entry(entry: Any, number: int) -> Upload:
    value = {"content": entry} if isinstance(entry, str) else entry
    if isinstance(value, dict) and ("url" in value or _is_address(str(value.get("content", ""))[:99])):
        raise _refuse_address()
    content = value.get("content") if isinstance(value, dict) else None
    name = value.get("name", f"image {number}") if isinstance(value, dict) else None
    if not isinstance(content, str) or not isinstance(name, str):
        raise Refusal(422, f"image {number} has no content", remedy='send {"name": "photo.jpg", "content": "BASE64"}')
    try:
        return Upload(_require_name(name), base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError) as error:
        raise Refusal(422, f"the content of image {number} is not base64", why=str(error)) from None


def fit(upload: Upload, inputs: Inputs, limits: Limits, budget: PixelBudget) -> NDArray[np.uint8] | DataError:
    """Decode an image and fit it to what the network takes, as `predict` does; returns the error of a bad one."""
    try:
        return _load(upload.content, inputs, limits.pixels, budget)
    except DataError as error:
        error.__cause__ = error.__context__ = None  # the traceback would keep the pixels in memory
        return error.with_traceback(None)
    finally:
        budget.settle()


def _load(content: bytes, inputs: Inputs, most: int, budget: PixelBudget) -> NDArray[np.uint8]:
    image = images.load(content, "the image", most, budget.hold)
    return images.center_crop(image, inputs.shape, inputs.center)
