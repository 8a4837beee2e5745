"""Keeps in a folder the images and Python packages with which a machine without a network builds.

The folder is the one of the archives that Bazel downloads. BuildKit takes the stages of docker/Dockerfile that would
use a network from these images, and closes the network for all others.
"""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import docker
from docker.errors import ImageNotFound

from toolkit.base import digest, files, ownership, processes, programs
from toolkit.base.console import Console
from toolkit.base.errors import EngineError, IntegrityError, UsageError
from toolkit.engine import buildx
from toolkit.engine.client import translating_errors

FILE: Final = "bundle.json"
IMAGES: Final = "images.tar"
PACKAGES: Final = "packages"
STAGES: Final = ("base", "uv", "compiler", "bazel-tools")
"""The stages that need a network, and those that all others stand on."""

SCHEMA: Final = 1
_LARGEST: Final = 256 << 30  # bytes of the images
_AGAIN: Final = "run `toolkit build-wheel --collect` again with a network, and carry the folder over once more"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    folder: Path  # where it lies
    lock: Mapping[str, Any]  # the lock that it was collected for, as it describes itself
    base: Mapping[str, str]  # what was known of the base image, as in toolkit.wheel.build_inputs.EngineImages
    bazel: Mapping[str, str]  # location and identity of the Bazel that is in it, if it replaced the pinned one
    names: Mapping[str, str]  # name of the image by stage
    ids: Mapping[str, str]  # digest of the image's configuration by stage
    images: str  # SHA-256 of the file with the images
    packages: Mapping[str, str]  # SHA-256 by name of the file

    @property
    def contexts(self) -> dict[str, str]:
        """The named contexts that replace stages."""
        return {stage: f"docker-image://{name}" for stage, name in self.names.items()}


def read(folder: Path) -> Bundle | None:
    """Return the bundle in a folder; None if it has archives alone. Raises IntegrityError if it is damaged."""
    if not (folder / FILE).exists():
        return None
    value: Any = files.read_json(folder / FILE)
    try:
        return Bundle(folder=folder, **{name: item for name, item in value.items() if name != "schema"})
    except (AttributeError, TypeError) as error:
        raise IntegrityError(f"{folder / FILE} is damaged", why=repr(error), remedy=_AGAIN) from error


def require_own_packages(folder: Path) -> None:
    """Raise UsageError if the subfolder for packages has something that no collection before put there.

    Raises IntegrityError if the record of that collection is damaged.
    """
    place = folder / PACKAGES
    if not place.exists() and not place.is_symlink():
        return
    before = read(folder)
    collected = before.packages.keys() if before else set[str]()
    others = [PACKAGES] if place.is_symlink() or not place.is_dir() else []
    others = others or sorted(path.name for path in place.iterdir() if path.name not in collected or path.is_dir())
    if others:
        raise UsageError(
            f"{place} is not only what `toolkit build-wheel --collect` put there",
            why=f"it would be replaced, and no collection recorded {others[0]}",
            remedy="give another folder, or move it away; remove it if an interrupted command left it",
        )


def write(
    folder: Path,
    *,
    commands: Mapping[str, tuple[str, Sequence[str]]],
    packages: Sequence[str],
    lock: Mapping[str, Any],
    base: Mapping[str, str],
    bazel: Mapping[str, str],
    client: docker.DockerClient,
    state: Path,
    log: Path,
    console: Console,
) -> Bundle:
    """Build the images, save them and the packages in a folder, and return what it holds now.

    ``commands``: name of the image and the command that makes it, by stage. ``packages``: the command that writes the
    packages to ``folder/packages``. Raises BuildError, EngineError, PreflightError if the disk is full, and what
    :func:`require_own_packages` raises.
    """
    require_own_packages(folder)
    loaded = {name for name, _ in commands.values() if _find_id(client, name)}  # from a folder, for a build here
    for stage, (name, command) in commands.items():
        buildx.build(command, log=log, console=console, step=stage)
        if name not in loaded:
            ownership.record_image(state, name, _find_id(client, name))
    names = {stage: name for stage, (name, _) in commands.items()}
    ids = {stage: _find_id(client, name) for stage, name in names.items()}
    # A context is copied to BuildKit whole, and the images are for the engine.
    files.write_atomically(folder / ".dockerignore", f"{IMAGES}\n")
    images = _save(list(names.values()), folder / IMAGES)
    shutil.rmtree(folder / PACKAGES, ignore_errors=True)
    # These come last, because without their names in FILE they are not known as the toolkit's.
    buildx.build(packages, log=log, console=console, step=PACKAGES)
    made = Bundle(
        folder=folder,
        lock=lock,
        base=base,
        bazel=bazel,
        names=names,
        ids=ids,
        images=images,
        packages={path.name: digest.hash_file(path).hex() for path in sorted((folder / PACKAGES).iterdir())},
    )
    for name in set(names.values()) - loaded:  # this machine builds without them, and BuildKit keeps their layers
        with translating_errors("removing an image that was saved"):
            client.images.remove(name)
        ownership.forget_image(state, name)
    values = {name: value for name, value in asdict(made).items() if name != "folder"}
    files.write_json(folder / FILE, {"schema": SCHEMA, **values})
    return made


def load(bundle: Bundle, client: docker.DockerClient, state: Path) -> None:
    """Load the images of a bundle into an engine that does not have them yet, and record them in the state folder.

    Raises IntegrityError if a file is not the one that was collected, EngineError, and PreflightError if the disk is
    full.
    """
    for name, sha256 in bundle.packages.items():
        _require(bundle.folder / PACKAGES / name, sha256)
    for stage, name in bundle.names.items():
        ownership.record_image(state, name, bundle.ids[stage])
    if _has(client, bundle):
        return
    path = bundle.folder / IMAGES
    _require(path, bundle.images)
    with translating_errors("loading images"), path.open("rb") as stream:
        try:
            client.images.load(stream)
        except docker.errors.DockerException as error:
            if processes.DISK_FULL.search(str(error)):
                raise buildx.describe_full_disk(str(error)[:300]) from error
            raise
    if not _has(client, bundle):
        raise IntegrityError(f"{path} does not have the images that {FILE} names", remedy=_AGAIN)


def _has(client: docker.DockerClient, bundle: Bundle) -> bool:
    return all(_find_id(client, name) == bundle.ids[stage] for stage, name in bundle.names.items())


def _find_id(client: docker.DockerClient, name: str) -> str:
    with translating_errors("looking for an image"), suppress(ImageNotFound):
        return str(client.images.get(name).id)
    return ""


def _require(path: Path, sha256: str) -> None:
    if not path.exists():
        raise IntegrityError(f"{path} is missing", remedy=_AGAIN)
    if digest.hash_file(path, _LARGEST).hex() != sha256:
        raise IntegrityError(f"{path} is damaged", why=f"its SHA-256 is not {sha256}", remedy=_AGAIN)


def _save(names: list[str], path: Path) -> str:
    """Save images in a file, and return its SHA-256."""
    with files.stage(path.parent, path.name) as staging:
        partial = staging.path / path.name
        argv = ["docker", "save", "--output", str(partial), *names]
        done = programs.docker(argv).run()
        if done.returncode:
            files.require_room(path.parent)
            raise EngineError(
                "the images could not be saved", why=done.stderr.strip()[-400:], remedy="see the engine's log"
            )
        partial.replace(path)
    return digest.hash_file(path, _LARGEST).hex()
