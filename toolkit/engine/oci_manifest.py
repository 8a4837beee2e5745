"""Composes and reads OCI manifests of sets of files.

Formats: https://github.com/opencontainers/image-spec 1.1, with one layer for each file. What a registry sends is not
trusted: what has another form is None.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolkit.base import digest

TITLE: Final = "org.opencontainers.image.title"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
FORMS: Final = (
    MANIFEST,
    "application/vnd.oci.image.index.v1+json",
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


@dataclass(frozen=True, kw_only=True)
class Layer:
    title: str  # name of the file
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


def parse_manifest(content: bytes, kind: str) -> list[Layer] | None:
    match _read(content):
        case {"schemaVersion": 2, "artifactType": str(artifact_type), "layers": [*entries]} if artifact_type == kind:
            layers = [layer for entry in entries if (layer := _parse_layer(entry))]
            return layers if len({layer.title for layer in layers}) == len(entries) else None
    return None


def _parse_layer(entry: object) -> Layer | None:
    match entry:
        case {"digest": value, "size": int(size), "annotations": {"org.opencontainers.image.title": str(title)}} if (
            digest.is_digest(value) and 0 <= size < _LARGEST and _FILE_NAME.fullmatch(title)
        ):
            return Layer(title=title, digest=str(value), size=size)
    return None


def _write(value: dict[str, Any]) -> bytes:
    return json.dumps({"schemaVersion": 2, **value}, sort_keys=True, separators=(",", ":")).encode()


def _read(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
