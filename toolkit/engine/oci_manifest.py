"""Composes and reads OCI manifests: those of sets of files, and the indexes that name one set for each platform.

Formats: https://github.com/opencontainers/image-spec 1.1, with one layer for each file. What a registry sends is not
trusted: what has another form is None.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolkit.base import digest

TITLE: Final = "org.opencontainers.image.title"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
FORMS: Final = (
    MANIFEST,
    INDEX,
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
"""What a tag may have. A registry that is asked for one form answers 404 where it has another."""
_LARGEST: Final = 1 << 63
"""More bytes than any file has."""
EMPTY: Final = b"{}"
"""The configuration of what is no image. A registry must have it before a manifest."""

_NOTHING: Final = "application/vnd.oci.empty.v1+json"
_FILE_NAME: Final = re.compile(r"\w[\w.+-]{0,199}", re.ASCII)
_WORD: Final = re.compile(r"[a-z0-9]{1,20}")


@dataclass(frozen=True, kw_only=True)
class Layer:
    title: str  # name of the file
    digest: str
    size: int  # bytes


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The manifest of one platform, in an index."""

    platform: str  # such as ``linux/arm64``
    digest: str
    size: int  # bytes


def compose_manifest(kind: str, layers: Sequence[Layer], media_types: Sequence[str]) -> bytes:
    """Return the manifest of files. Equal files have equal manifests."""
    config = {"mediaType": _NOTHING, "digest": digest.digest_bytes(EMPTY), "size": len(EMPTY)}
    entries = [
        {"mediaType": type_, "digest": layer.digest, "size": layer.size, "annotations": {TITLE: layer.title}}
        for layer, type_ in zip(layers, media_types, strict=True)
    ]
    return _write({"mediaType": MANIFEST, "artifactType": kind, "config": config, "layers": entries})


def compose_index(kind: str, entries: Iterable[Entry]) -> bytes:
    """Return the index of manifests of one kind, by platform."""
    described = []
    for entry in sorted(entries, key=lambda entry: entry.platform):
        os, _, architecture = entry.platform.partition("/")
        place = {"os": os, "architecture": architecture}
        described.append(
            {
                "mediaType": MANIFEST,
                "artifactType": kind,
                "digest": entry.digest,
                "size": entry.size,
                "platform": place,
            }
        )
    return _write({"mediaType": INDEX, "artifactType": kind, "manifests": described})


def parse_manifest(content: bytes, kind: str) -> list[Layer] | None:
    match _read(content):
        case {"schemaVersion": 2, "artifactType": str(artifact_type), "layers": [*entries]} if artifact_type == kind:
            layers = [layer for entry in entries if (layer := _parse_layer(entry))]
            return layers if len({layer.title for layer in layers}) == len(entries) else None
    return None


def parse_index(content: bytes, kind: str) -> list[Entry] | None:
    match _read(content):
        case {"schemaVersion": 2, "artifactType": str(artifact_type), "manifests": [*entries]} if artifact_type == kind:
            parsed = [entry for value in entries if (entry := _parse_entry(value))]
            return parsed if len({entry.platform for entry in parsed}) == len(entries) else None
    return None


def _parse_layer(entry: object) -> Layer | None:
    match entry:
        case {"digest": value, "size": int(size), "annotations": {"org.opencontainers.image.title": str(title)}} if (
            digest.is_digest(value) and 0 <= size < _LARGEST and _FILE_NAME.fullmatch(title)
        ):
            return Layer(title=title, digest=str(value), size=size)
    return None


def _parse_entry(entry: object) -> Entry | None:
    match entry:
        case {"digest": value, "size": int(size), "platform": {"os": str(os), "architecture": str(name)}} if (
            digest.is_digest(value) and 0 <= size < _LARGEST and _WORD.fullmatch(os) and _WORD.fullmatch(name)
        ):
            return Entry(platform=f"{os}/{name}", digest=str(value), size=size)
    return None


def _write(value: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, **value}, sort_keys=True, separators=(",", ":")).encode()


def _read(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
