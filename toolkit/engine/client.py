"""The connection to a container engine, with its failures in our own words."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env

from toolkit.errors import CheckError, EngineError

ANSWER_SECONDS = 20
"""How long a reachable engine may take over one question. Streams are not bound by it."""

OLDEST_API = (1, 43)
"""Engine 24, whose BuildKit has all that docker/Dockerfile uses."""

OLDEST_BUILDX = (0, 13)
"""The first with ``--progress rawjson``."""

START_IT = "start the engine (`systemctl start docker`, Docker Desktop, ...), check DOCKER_HOST, or use --engine host"

GPU_REMEDY = (
    "on a machine with an NVIDIA GPU and driver, install nvidia-container-toolkit and run "
    "`nvidia-ctk runtime configure`; `toolkit doctor` says what it sees"
)


@contextmanager
def translating_errors(doing: str) -> Iterator[None]:
    """Turn the SDK's exceptions into :class:`EngineError`; its own kinds are many and its messages are for developers.

    Raises:
        EngineError: the engine refused, vanished, or talked nonsense.
        CheckError: a GPU was asked of an engine that has none to give.
    """
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        why = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
        if "could not select device driver" in why:
            # The engine's words for a GPU asked of an engine without the NVIDIA runtime: not the engine's fault.
            raise CheckError("there is no GPU for the container", why=why[:400], remedy=GPU_REMEDY) from error
        raise EngineError(
            f"the container engine failed while {doing}", why=why[:400], remedy="see the engine's log"
        ) from error


def connect() -> docker.DockerClient:
    """A client of an engine that answers and is new enough.

    Raises:
        EngineError: there is none.
    """
    try:
        client = docker.DockerClient(**_find_endpoint(), timeout=ANSWER_SECONDS, version="auto")
        client.ping()
    except (DockerException, requests.RequestException, ValueError) as error:
        raise EngineError("no container engine answers", why=str(error)[:400], remedy=START_IT) from error
    version = client.version()
    api = tuple(int(part) for part in str(version["ApiVersion"]).split("."))
    if api < OLDEST_API:
        raise EngineError(
            f"the container engine {version.get('Version')} is too old",
            why=f"its API is {version['ApiVersion']}, and the builds need {'.'.join(map(str, OLDEST_API))}",
            remedy="install Docker Engine 24 or newer",
        )
    return client


def _find_endpoint() -> dict[str, Any]:
    """Where the docker command itself would go: DOCKER_HOST, else the current context; the SDK knows the first only."""
    if os.environ.get("DOCKER_HOST"):
        return dict(kwargs_from_env())
    context = ContextAPI.get_current_context()
    return {"base_url": context.Host, "tls": context.TLSConfig} if context else {}


@cache
def find_buildx() -> str | None:
    """Version line of ``docker buildx``, or None where the client lacks it."""
    try:
        answer = subprocess.run(
            ["docker", "buildx", "version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def is_old_buildx(line: str) -> bool:
    """Whether a version line names a release that lacks what our builds use; an unknown form is believed to be new."""
    match = re.search(r"buildx v?(\d+)\.(\d+)", line)
    return match is not None and (int(match[1]), int(match[2])) < OLDEST_BUILDX


def require_buildx() -> None:
    """Raises:
    EngineError: the docker client has no buildx, or one that is too old.
    """
    found = find_buildx()
    if found is not None and is_old_buildx(found):
        raise EngineError(
            f"`docker buildx` is too old: {found}",
            why=f"the builds need {'.'.join(map(str, OLDEST_BUILDX))}, the first that reports progress as JSON",
            remedy="install a newer docker-buildx plugin",
        )
    if found is None:
        raise EngineError(
            "`docker buildx` is missing",
            why="BuildKit is driven through it: named contexts, secrets and cache mounts need it",
            remedy="install the docker-buildx plugin",
        )
