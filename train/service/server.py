"""Starts the server: ``python -m train serve RUN``.

The listening socket is made first. Then the process gives up the network: it can answer, but open no connection.
"""

import asyncio
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import typer

from train.cli import run_command
from train.cores import count_cores
from train.errors import IntegrityError, PreflightError
from train.record import reader
from train.service import options
from train.service.options import find_proxies, read_hosts, read_token, require_guard
from train.system import output, signals
from train.system.network import close_network

if TYPE_CHECKING:
    import uvicorn

    from train.service.application import Service
    from train.service.reading import Limits
    from train.use.network import Network

MEBI: Final = 1 << 20
IDLE_SECONDS: Final = 5
HEADER_BYTES: Final = 32_768
CONNECTIONS: Final = 512
LARGEST_AT_ONCE: Final = 2
"""How many images of the largest size are decoded at a time, however many cores there are."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket of an address, which does not listen yet. Raises a PreflightError."""
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # asyncio sends small answers at once (TCP_NODELAY) on sockets that name their protocol: others wait 40 ms.
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise PreflightError(
            f"cannot listen on {host}, port {port}",
            why=error.strerror or str(error),
            remedy="choose another with --port, or 0 for any that is free",
        ) from error
    return bound


def describe(network: "Network") -> dict[str, Any]:
    """Return the facts of the model card and the digests that lead to what the run was made of."""
    config, inputs = network.config, network.inputs
    try:
        manifest = reader.read_record(network.folder).value
    except IntegrityError:  # a run that is not finished has no result
        manifest = {}
    saved = reader.read_newest_state(network.folder)
    return {
        "run": network.folder.resolve().name,
        "model": f"DenseNet {config.model}",
        "dataset": config.dataset,
        "classes": list(inputs.class_names),
        "input": dict(zip(("height", "width", "channels"), inputs.shape, strict=True)),
        "kernels": "native" if network.form.native else "those of TensorFlow",
        "note": network.note,
        "result": {
            name: manifest["result"][name]
            for name in ("test_accuracy", "test_loss", "epochs", "steps")
            if name in manifest.get("result", {})
        },
        "digests": {
            "weights": reader.digest_weights(saved) if saved else "",
            "config": config.digest,
            "data": network.position.environment.get("data_sha256", ""),
            "kernels": network.position.environment.get(reader.KERNELS) or "",
            "wheel": find_digest(manifest.get("parent"), "wheel"),
        },
        "parent": manifest.get("parent") or {},
        "software": manifest.get("software") or {},
    }


def find_digest(record: Any, kind: str) -> str:
    """Return the digest of the first record of a kind in the chain of a run's parents; empty if there is none."""
    while isinstance(record, Mapping):
        if record.get("kind") == kind:
            return str(record.get("digest", ""))
        record = record.get("parent")
    return ""


def collect(  # noqa: PLR0917
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    host: options.Host = options.HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = options.PORT,
    token_file: options.TokenFile = None,
    published: Annotated[
        bool,
        typer.Option(
            "--published",
            help="Listen on all addresses of a container whose port is published on loopback alone, without a token.",
        ),
    ] = False,
    batch: options.Batch = options.BATCH,
    wait: options.Wait = options.WAIT,
    queue: options.Queue = options.QUEUE,
    max_mib: options.MaxMib = options.MAX_MIB,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    timeout: options.Timeout = options.TIMEOUT,
    allow_host: options.AllowHost = None,
    log_format: options.LogFormat = "text",
) -> int:
    """Serve the predictions of a run by HTTP, until SIGTERM."""
    host = "0.0.0.0" if published else host  # noqa: S104 - in a container
    token = read_token(token_file)
    hosts = read_hosts(allow_host or ())
    require_guard(host, token, published=published)
    reader.read_folder_config(run)
    bound = bind(host, port)
    from train.service.reading import Limits
    from train.use import network

    loaded = network.load(run, exact=True)
    # The first call makes the graph. It is made now, so that no request waits for it.
    loaded.compute_probabilities(np.zeros((1, *loaded.inputs.shape), np.uint8))
    limits = Limits(bytes=max_mib * MEBI, pixels=max_pixels, images=queue, seconds=timeout)
    service = make_service(loaded, limits, token=token, size=batch, wait=wait / 1000, hosts=hosts, log=log_format)
    service = replace(service, proxies=find_proxies()) if published else service
    if loaded.note:
        output.say(f"note: {loaded.note}")
    if trouble := close_network():
        output.say(f"note: the network stays open to this server: {trouble}")
    host, port = bound.getsockname()[:2]
    host = "127.0.0.1" if published else host  # the engine publishes the port of a container on loopback
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    _serve(make_server(service), bound, f"{output.translate(str(run))} is served on http://{address}")
    return 0


def make_service(
    network: "Network",
    limits: "Limits",
    *,
    token: str,
    size: int,
    wait: float,
    hosts: frozenset[str] = frozenset(),
    log: output.LogFormat = "text",
) -> "Service":
    """Return a network with its facts and its queue. A request may have as many images as the queue has places."""
    from train.service.application import Service
    from train.service.batches import Batches
    from train.service.metrics import Metrics
    from train.service.reading import PixelBudget

    metrics = Metrics()
    compute = network.compute_probabilities
    return Service(
        network=network,
        facts=describe(network),
        limits=limits,
        batches=Batches(compute=compute, metrics=metrics, size=size, wait=wait, limit=limits.images),
        metrics=metrics,
        readers=count_cores(),
        budget=PixelBudget(LARGEST_AT_ONCE * limits.pixels),
        token=token,
        hosts=hosts,
        log=log,
    )


def make_server(service: "Service") -> "uvicorn.Server":
    import uvicorn

    from train.service.application import Connection, make_application

    config = uvicorn.Config(
        make_application(service),
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        server_header=False,
        # The address of a client is the one that a proxy of this machine names in X-Forwarded-For.
        proxy_headers=bool(service.hosts),
        forwarded_allow_ips=[*service.proxies],
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=int(2 * service.limits.seconds) + 1,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEADER_BYTES,
        backlog=CONNECTIONS,
    )
    return uvicorn.Server(config)


def _serve(server: "uvicorn.Server", bound: socket.socket, message: str) -> None:
    """Run a server until a signal asks it to stop, and say the message when it answers.

    Requests that it has taken are answered.
    """

    def stop(number: int, frame: object) -> None:  # noqa: ARG001
        server.should_exit = True

    signals.check()
    # When uvicorn has ended, it raises the signal again, which would end the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)

    async def run() -> None:
        serving = asyncio.create_task(server.serve([bound]))
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        output.say(message)
        await serving

    asyncio.run(run())


def main(argv: Sequence[str]) -> int:
    return run_command(collect, "serve", argv)
