"""Reads an image in an archive of `docker save`: https://github.com/moby/moby/tree/master/image/spec."""

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.base import digest, naming
from toolkit.base.errors import IntegrityError, UsageError
from toolkit.engine import EnvironmentSpec
from toolkit.versions.set import VERSIONS, Set


@dataclass(frozen=True, kw_only=True)
class Archive:
    """An image in an archive of `docker save`."""

    name: str
    identity: str  # digest of the image's configuration, which names its layers: the engine's image id
    labels: Mapping[str, str]
    layers: Mapping[str, str]  # the digest that each layer has when unpacked, by its name in the archive

    @property
    def versions(self) -> Set:
        return Set.of({name: self.labels.get(f"{naming.LABEL_PREFIX}.{name}") for name in VERSIONS})


def read(path: Path) -> Archive:
    """Read what an archive says of its image. Raises UsageError if there is none, or it is no archive of one image."""
    try:
        with tarfile.open(path) as stored:
            (entry,) = json.loads(_read(stored, "manifest.json"))
            content = _read(stored, entry["Config"])
        config = json.loads(content)
        return Archive(
            name=(entry.get("RepoTags") or [path.name])[0],
            identity=digest.digest_bytes(content),
            labels=config["config"].get("Labels") or {},
            layers=dict(zip(entry["Layers"], config["rootfs"]["diff_ids"], strict=True)),
        )
    except (OSError, EOFError, tarfile.TarError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path} is not an archive of one image",
            why=getattr(error, "strerror", None) or str(error),
            remedy="`docker save --output FILE NAME` writes one, and is complete when the command has ended",
        ) from error


def verify(path: Path, archive: Archive) -> None:
    """Raise an IntegrityError if a layer is not the one that the image names, which engines do not check."""
    with tarfile.open(path) as stored:
        for name, promised in archive.layers.items():
            value = _digest_layer(stored, name)
            if value != promised:
                raise IntegrityError(
                    f"{path} is damaged",
                    why=f"its layer {name} has {value}, and the image names {promised}",
                    remedy="copy it again, or write it again by `docker save`",
                )


def require_same(archive: Archive, spec: EnvironmentSpec, path: Path) -> None:
    held = archive.versions
    if archive.labels.get(naming.OWNER_LABEL) != "toolkit" or not held.tensorflow:
        raise UsageError(
            f"the image {archive.name} in {path} has no labels of the toolkit",
            why="the job and the checks need an image of `toolkit build-image`",
            remedy="save such an image",
        )
    if replace(held, python="").named() != replace(spec, python="").named():
        options = " ".join(held.flags())
        raise UsageError(
            f"the image in {path} has other versions than those asked for",
            why=f"asked for: {spec.describe()}",
            remedy=f"give {options}, or the archive of another image",
        )


def _digest_layer(stored: tarfile.TarFile, name: str) -> str:
    try:
        stream: Any = stored.extractfile(name)
        if stream.peek(2)[:2] == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=stream)
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, EOFError, tarfile.TarError, zlib.error, LookupError, AttributeError) as error:
        return f"no content ({error})"


def _read(stored: tarfile.TarFile, name: str) -> bytes:
    member = stored.extractfile(name)
    if member is None:
        raise LookupError(f"{name} is not a file in it")
    return member.read()
