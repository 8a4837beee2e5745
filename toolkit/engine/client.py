import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import docker
import requests
from docker.context import ContextAPI
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import kwargs_from_env

from toolkit.base import naming, ownership, programs
from toolkit.base.errors import EngineError, GpuError, PreflightError
from toolkit.engine.user import Users
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table
from train.system import signals

ANSWER_SECONDS = 20
"""How long a reachable engine may take to answer one request. Streams have no such limit."""

OLDEST_API = (1, 43)
"""Docker Engine 24, whose BuildKit supports everything that docker/Dockerfile uses."""

OLDEST_BUILDX = (0, 13)
"""The first release with ``--progress rawjson``."""

START_IT = "start the engine (`systemctl start docker`, Docker Desktop, ...), check DOCKER_HOST, or use --engine host"

PODMAN_BUILDS = (
    "Podman has no BuildKit of its own: build the image where Docker is, and `docker save NAME | podman load`; "
    "or use --engine host"
)
"""What to do where an image is missing in Podman."""

GPU_REMEDY = (
    "on a machine with an NVIDIA GPU and driver, install nvidia-container-toolkit and run "
    "`nvidia-ctk runtime configure`; `toolkit doctor` lists what it finds"
)

_NO_GPU = re.compile(r"could not select device driver|nvidia-container-cli|unresolvable CDI devices|libnvidia-ml\.so")
"""What an engine that works says if it has no NVIDIA runtime, or if the runtime finds no driver or no GPU."""


@contextmanager
def translating_errors(doing: str) -> Iterator[None]:
    """Turn the SDK's exceptions into EngineError, or GpuError if a job needs a GPU and the engine has none."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        why = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
        if _NO_GPU.search(why):
            raise GpuError("there is no GPU for the container", why=why[:400], remedy=GPU_REMEDY) from error
        remedy = "see the engine's log"
        if "error setting rlimit" in why:
            remedy = "Podman raises limits that root of this machine may not raise: lower default_ulimits, nofile and "
            remedy += "nproc, in containers.conf"
        raise EngineError(f"the container engine failed while {doing}", why=why[:400], remedy=remedy) from error


def connect() -> docker.DockerClient:
    """Return a client of an engine that answers and is new enough. Raises EngineError if there is no such engine."""
    programs.require_own_docker()
    try:
        client = docker.DockerClient(**_find_endpoint(), timeout=ANSWER_SECONDS, version="auto")
        client.ping()
        version = client.version()
    except (DockerException, requests.RequestException, ValueError) as error:
        why = "there is no socket of one" if "FileNotFoundError" in str(error) else str(error)[:400]
        raise EngineError("no container engine answers", why=why, remedy=START_IT) from error
    api = tuple(int(part) for part in str(version["ApiVersion"]).split("."))
    if api < OLDEST_API and not is_podman(client):
        raise EngineError(
            f"the container engine {version.get('Version')} is too old",
            why=f"its API is {version['ApiVersion']}, and the builds need {'.'.join(map(str, OLDEST_API))}",
            remedy="install Docker Engine 24 or newer",
        )
    return client


def _find_endpoint() -> dict[str, Any]:
    """Return the docker command's endpoint: DOCKER_HOST, else the current context. The SDK does not read contexts."""
    if os.environ.get("DOCKER_HOST"):
        return dict(kwargs_from_env())
    context = ContextAPI.get_current_context()
    return {"base_url": context.Host, "tls": context.TLSConfig} if context else {}


def is_podman(client: docker.DockerClient) -> bool:
    """Return whether an engine is Podman, whose number for Docker's API says nothing of what it can do."""
    with translating_errors("asking for its version"):
        return any(part["Name"] == "Podman Engine" for part in client.version().get("Components") or ())


def find_users(client: docker.DockerClient) -> Users:
    """Return how the users in its containers are related to those of this machine, as the engine itself says."""
    with translating_errors("asking for its users"):
        info = client.info()
        options = {word for option in info.get("SecurityOptions") or () for word in option.split(",")}
        rootless = "name=rootless" in options
        if not rootless and is_podman(client):
            # Podman 4.3 tells it only by its own API.
            answer = client.api.get(f"{client.api.base_url}/v4.0.0/libpod/info", timeout=ANSWER_SECONDS)
            rootless = bool(answer.json()["host"]["security"]["rootless"])
    owner = None
    if rootless:
        with suppress(OSError):
            status = Path(info["DockerRootDir"]).stat()
            owner = (status.st_uid, status.st_gid)
    return Users(rootless=rootless, mapped="name=userns" in options, owner=owner)


@cache
def find_buildx() -> str | None:
    try:
        answer = programs.docker(["docker", "buildx", "version"]).run(seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def is_old_buildx(line: str) -> bool:
    match = re.search(r"buildx v?(\d+)\.(\d+)", line)
    return match is not None and (int(match[1]), int(match[2])) < OLDEST_BUILDX


def require_buildx() -> None:
    version = find_buildx()
    if version is not None and is_old_buildx(version):
        raise EngineError(
            f"`docker buildx` is too old: {version}",
            why=f"the builds need {'.'.join(map(str, OLDEST_BUILDX))}, the first that reports progress as JSON",
            remedy="install a newer docker-buildx plugin",
        )
    if version is None:
        raise EngineError(
            "`docker buildx` is missing",
            why="BuildKit is driven through it: named contexts, secrets and cache mounts need it",
            remedy="install the docker-buildx plugin",
        )


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    reference: str  # what ``FROM`` names
    identity: str  # the registry's digest, which a pull does not change; else the image id
    why: str = ""  # the reason for this image, if it is not the requested one
    registered: bool = False  # whether a registry gave the identity

    @property
    def pinned(self) -> str:
        """The reference with the registry's digest, if there is one, because a tag may be moved."""
        return f"{self.reference}@{self.identity}" if self.registered and "@" not in self.reference else self.reference


def select_base(client: docker.DockerClient, settings: Settings, python: str = "") -> BaseImage:
    """Return the wanted base image of this machine, else a local stand-in, else the wanted one of the registry.

    A stand-in never replaces an image that the user named. Raises PreflightError if none of these is available.
    """
    named = settings.sources["base_image"] != "default"
    wanted = settings.base_image
    if python and not named:
        wanted = re.sub(r"^python:[0-9.]+", f"python:{python}", wanted)
    with translating_errors("looking for the base image"):
        base = _find_base(client, wanted)
        if base:
            return base
        if not named:
            standin = _find_base(client, naming.name_standin(python or "3.11"))
            if standin:
                return replace(standin, why=f"base {standin.reference}, in place of {wanted}")
        try:
            return BaseImage(reference=wanted, identity=client.images.get_registry_data(wanted).id, registered=True)
        except APIError as error:
            raise PreflightError(
                f"the base image {wanted} is neither on this machine nor can it be pulled",
                why=str(error.explanation or error)[:300],
                remedy="`docker/base/bootstrap` makes a stand-in from Debian's packages, "
                "`docker load` loads one from a file, --base-image names another, --engine host needs none",
            ) from error


def find_distribution(client: docker.DockerClient, base: BaseImage, state: Path | None = None) -> str:
    """Return the codename of an image's Linux distribution: of its name, else of its files; empty if it is unknown."""
    named = load_table().find_base(base.reference)
    if named:
        return named.codename
    with translating_errors("looking at the base image"):
        if base.registered and not client.images.list(base.reference):
            return ""
    try:
        text = read_files(client, base.reference, "/usr/lib/os-release", state)["os-release"].decode(errors="replace")
    except (EngineError, KeyError):
        return ""
    match = re.search(r'^VERSION_CODENAME="?([a-z]+)', text, re.MULTILINE)
    return match[1] if match else ""


def find_digest(client: docker.DockerClient, reference: str) -> str | None:
    with translating_errors("looking for an image"):
        base = _find_base(client, reference)
        return base.identity if base else None


def read_files(client: docker.DockerClient, reference: str, folder: str, state: Path | None = None) -> dict[str, bytes]:
    """Return the content of a file, or of each file in a folder, of an image, by name. No program of the image runs.

    ``state``: the state folder whose label the container gets that is made for it, and removed.
    """
    with translating_errors("reading files of an image"), signals.deferring():
        container = client.containers.create(
            reference, "true", labels={**ownership.label(state), naming.JOB_LABEL: "files"}
        )
        try:
            stream, _ = container.get_archive(folder)
            with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                members = [(item.name, archive.extractfile(item)) for item in archive if item.isfile()]
                return {name: content.read() for name, content in members if content}
        finally:
            container.remove(v=True)


@dataclass(frozen=True, kw_only=True)
class InspectedImage:
    id: str  # digest of its configuration, which names its layers and labels
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    layers: tuple[str, ...]  # digests of its layers, lowest first


def inspect(reference: str) -> InspectedImage | None:
    client = connect()
    with translating_errors("looking at an image"):
        try:
            image = client.images.get(reference)
        except ImageNotFound:
            return None
    layers = image.attrs.get("RootFS", {}).get("Layers") or ()
    return InspectedImage(
        id=str(image.id), tags=tuple(image.tags), labels=dict(image.labels), layers=tuple(map(str, layers))
    )


def _find_base(client: docker.DockerClient, reference: str) -> BaseImage | None:
    try:
        image = client.images.get(reference)
    except ImageNotFound:
        return None
    digest = _identify(reference, image.attrs.get("RepoDigests") or [])
    return BaseImage(reference=reference, identity=digest or str(image.id), registered=bool(digest))


def _identify(reference: str, digests: Sequence[str]) -> str:
    """Return the digest from the reference's own registry, or nothing; ``digests`` are ``REPOSITORY@sha256:…``."""
    repository = re.sub(r"(:[\w][\w.-]*)?(@.*)?$", "", reference)
    parts = (text.partition("@") for text in digests)
    return next((value for name, _, value in parts if name == repository), "")
