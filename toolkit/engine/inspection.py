"""What a container engine says of an image that it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from docker.errors import ImageNotFound

from toolkit.engine.client import connect, translating_errors


@dataclass(frozen=True, kw_only=True)
class InspectedImage:
    """An image.

    Attributes:
        id: digest of its configuration, which names its layers and labels: another content, another id.
        tags: names that it has now.
        labels: as they were given when it was built.
        layers: digests of its layers, lowest first.
    """

    id: str
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    layers: tuple[str, ...]


def inspect(reference: str) -> InspectedImage | None:
    """An image by name or id, or None where the engine has none.

    Raises:
        EngineError: no engine answers.
    """
    client = connect()
    with translating_errors("looking at an image"):
        try:
            found = client.images.get(reference)
        except ImageNotFound:
            return None
    layers = found.attrs.get("RootFS", {}).get("Layers") or ()
    return InspectedImage(
        id=str(found.id), tags=tuple(found.tags), labels=dict(found.labels), layers=tuple(map(str, layers))
    )
