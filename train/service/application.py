"""Answers requests: predictions, health, what is known of the network, metrics, and a page to try it.

It is plain HTTP for one network. Without a token, or with names of its own, requests must name a loopback host or one
of these names, so that no web page can reach the server by a host name of its own (DNS rebinding). No page of another
origin may use the server.
"""

import asyncio
import base64
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import h11
import numpy as np
import yaml
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from train.errors import DataError, TooLargeError
from train.service import access
from train.service.batches import Batches
from train.service.metrics import KIND, Metrics
from train.service.options import PROXIES
from train.service.reading import Limits, PixelBudget, Refusal, Upload, fit, read_uploads
from train.system.output import LogFormat, dump_json
from train.use.network import Network
from train.use.prediction import Prediction, describe_problem, rank, render_explanation

FOLDER: Final = Path(__file__).parent
DESCRIPTION: Final = FOLDER / "openapi.yaml"

OPEN: Final = frozenset({"/", "/health"})
"""Paths without a token: the page, which asks for it, and the probe. Neither tells anything about the network."""

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

REFUSED: Final = "toolkit.refused"
"""The key of a request's scope with the reason why it was refused."""

Answer = Callable[[Request], Awaitable[Response]]


class JSONAnswer(Response):
    """An answer in JSON, all of it ASCII, because names of classes may have characters that UTF-8 cannot encode."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump_json(content).encode("ascii")


@dataclass(frozen=True, kw_only=True)
class Service:
    """A network, and how it is served."""

    network: Network
    facts: dict[str, Any]  # the answer of /metadata
    limits: Limits
    batches: Batches
    metrics: Metrics
    readers: int  # how many requests may have their images read at a time
    budget: PixelBudget  # the pixels that these may decode at a time
    token: str = ""  # empty if the server listens on loopback alone
    hosts: frozenset[str] = (
        frozenset()
    )  # names beside those of loopback by which it may be asked; empty: with a token, by any
    proxies: tuple[str, ...] = PROXIES  # addresses that may say whose request they pass on, if it has ``hosts``
    log: LogFormat = "text"

    @property
    def top(self) -> int:
        return len(self.network.inputs.class_names)


def make_application(service: Service) -> ASGIApp:
    """Return the server as an ASGI application."""
    reading = asyncio.Semaphore(service.readers)

    async def predict(request: Request) -> Response:
        top, explain = _read_options(request, service.top)
        service.batches.require_place(1)
        uploads = await read_uploads(request, service.limits)
        try:
            async with asyncio.timeout(service.limits.seconds):
                predictions = await _predict(service, reading, uploads, top, explain=explain)
        except TimeoutError:
            raise Refusal(
                504, f"there was no answer within {service.limits.seconds:g} s", remedy="try again later", again=1
            ) from None
        status = (
            200
            if any(prediction["guesses"] for prediction in predictions)
            else max(prediction.pop("status") for prediction in predictions)
        )
        if status != 200:
            request.scope[REFUSED] = predictions[0]["problem"]
        for prediction in predictions:
            prediction.pop("status", None)
        return JSONAnswer({"run": service.facts["run"], "predictions": predictions}, status)

    async def health(_: Request) -> Response:
        return JSONAnswer({"status": "ok"})

    async def metadata(_: Request) -> Response:
        return JSONAnswer(service.facts)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(service.metrics.render(), media_type=KIND)

    async def show(_: Request) -> Response:
        return HTMLResponse(made.text, headers={"Content-Security-Policy": made.policy})

    async def describe(_: Request) -> Response:
        return JSONAnswer(description)

    made, description = render_page(), yaml.safe_load(DESCRIPTION.read_text(encoding="utf-8"))
    answers: dict[str, tuple[str, Answer]] = {
        "/": ("GET", show),
        "/health": ("GET", health),
        "/metadata": ("GET", metadata),
        "/metrics": ("GET", metrics),
        "/openapi.json": ("GET", describe),
        "/predictions": ("POST", predict),
    }
    routes = [Route(path, answer, methods=[method]) for path, (method, answer) in answers.items()]
    inner = Starlette(routes=routes, exception_handlers={Refusal: _explain, 404: _explain_path, 405: _explain_path})
    return _Guard(inner, service, frozenset(answers))


async def _predict(
    service: Service, reading: asyncio.Semaphore, uploads: list[Upload], top: int, *, explain: bool
) -> list[dict[str, Any]]:
    network = service.network
    decoded = []
    for upload in uploads:
        async with reading:
            decoded.append(await run_in_threadpool(fit, upload, network.inputs, service.limits, service.budget))
    good = [image for image in decoded if not isinstance(image, DataError)]
    shares = iter(await service.batches.classify(good) if good else ())
    predictions = []
    for upload, image in zip(uploads, decoded, strict=True):
        if isinstance(image, DataError):
            status = 413 if isinstance(image, TooLargeError) else 422
            predictions.append(asdict(Prediction(upload.name, problem=describe_problem(image))) | {"status": status})
            continue
        share = next(shares)
        entry = asdict(Prediction(upload.name, rank(network.inputs.class_names, share, top)))
        if explain:
            draw = partial(render_explanation, network, image, int(np.argmax(share)))
            picture = base64.b64encode(await service.batches.run(draw)).decode()
            entry["explanation"] = f"data:image/png;base64,{picture}"
        predictions.append(entry)
    return predictions


def _read_options(request: Request, classes: int) -> tuple[int, bool]:
    top, explain = request.query_params.get("top", "5"), request.query_params.get("explain", "0")
    if not (top.isdecimal() and len(top) < 9 and int(top) > 0):
        raise Refusal(422, f"top is {top[:20]!r}", remedy="give a number from 1 on")
    if explain not in {"0", "1"}:
        raise Refusal(422, f"explain is {explain[:20]!r}", remedy="give 1 for a picture of each image, or 0")
    return min(int(top), classes), explain == "1"


async def _explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)  # noqa: S101 - no others come here
    return refuse(request, error)


async def _explain_path(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    message = f"there is no {request.method} {request.url.path[:100]}"
    return refuse(request, Refusal(status, message, remedy="/openapi.json describes what there is"))


def refuse(request: Request, error: Refusal) -> JSONAnswer:
    """Turn a refusal into an answer, in the form of the errors of ``toolkit --json``, and note why it was refused."""
    request.scope[REFUSED] = error.what
    headers = {"Retry-After": str(error.again)} if error.again else {}
    headers |= {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
    value = {"error": {"what": error.what, "why": error.why, "remedy": error.remedy}}
    return JSONAnswer(value, error.status, headers)


class _Guard:
    """Checks who may send a request, adds the headers of every answer, and counts and lists requests."""

    def __init__(self, inner: ASGIApp, service: Service, paths: frozenset[str]) -> None:
        self._inner, self._service, self._paths = inner, service, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        scope = _resolve(scope)
        request, began, status = Request(scope), time.monotonic(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            error = self._judge(request)
            await (refuse(request, error) if error else self._inner)(scope, receive, note)
        finally:
            seconds = time.monotonic() - began
            self._service.metrics.note_request(path, status, seconds)
            asked = access.Access(
                client=request.client.host if request.client else "",
                host=request.headers.get("host", ""),
                method=request.method,
                path=scope["raw_path"].decode("latin-1"),
                status=status,
                seconds=seconds,
                refused=scope.get(REFUSED, ""),
            )
            access.write(asked, self._service.log)

    def _judge(self, request: Request) -> Refusal | None:
        token, host = self._service.token, request.headers.get("host", "")
        hosts = self._service.hosts
        if (hosts or not token) and _strip_port(host) not in LOOPBACK | hosts:
            return Refusal(
                421,
                "this host is not served",
                why="the server is for the names of --allow-host" if hosts else "the server is for this machine",
                remedy="ask by one of its names"
                if hosts
                else "use 127.0.0.1, or start the server with --allow-host and the name that a proxy passes on",
            )
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return Refusal(403, "a page of another origin may not use the server")
        if token and request.url.path not in OPEN:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
                return Refusal(401, "the token is missing or wrong", remedy="send Authorization: Bearer TOKEN")
        return None


_ABSOLUTE: Final = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE | re.DOTALL)


def _resolve(scope: Scope) -> Scope:
    """Return a request whose target may name a host, which then counts in place of the header (RFC 9112, 3.2.2)."""
    if not (match := _ABSOLUTE.fullmatch(scope["raw_path"])):
        return scope
    headers = [(b"host", match[1]), *((name, value) for name, value in scope["headers"] if name != b"host")]
    path = match[2] or b"/"
    return {**scope, "headers": headers, "raw_path": path, "path": unquote(path.decode("ascii"))}


def _strip_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdecimal() else host.lower()


BASE: Final = FOLDER.parent / "report" / "base.css"
"""The style that this page shares with those of ``toolkit report``."""


class Page(NamedTuple):
    text: str
    policy: str  # its Content-Security-Policy


@cache
def render_page() -> Page:
    """Return the page on which any network can be tried: one file, which asks no other host for anything.

    It asks the server for the facts that it shows, and writes them as plain text.
    """
    style = "".join(path.read_text(encoding="utf-8") for path in (BASE, FOLDER / "page.css"))
    script, text = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.js", "page.html"))
    policy = "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "connect-src 'self'",
            "img-src blob: data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )
    return Page(text.replace("@style@", style).replace("@script@", script), policy)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


HEAD_SECONDS: Final = 10
"""How long a connection may take to send the head of a request, which uvicorn does not limit."""


class Connection(H11Protocol):
    """A connection that is closed if the head of its next request is not there in time.

    A sender that has said all it has to say, and closed its own half, gets the answers to its whole requests.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._patience: asyncio.TimerHandle | None = None
        self._ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait()

    def eof_received(self) -> bool:  # type: ignore[override]
        self._ended = True
        return self._owes_answer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._ended and not self._owes_answer():
            self.transport.close()

    def _owes_answer(self) -> bool:
        """Return whether a whole request has no answer yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

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
