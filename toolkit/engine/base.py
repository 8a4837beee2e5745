"""The image that every stage stands on: the one asked for, or the stand-in of machines without a registry."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import docker
from docker.errors import APIError, ImageNotFound

from toolkit import naming
from toolkit.engine.client import translating_errors
from toolkit.errors import PreflightError
from toolkit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base image that can be used now.

    Attributes:
        reference: what ``FROM`` names.
        identity: registry digest, the same before and after the pull; image id where it is from no registry.
        why: why this one, when it is not the one asked for.
        registered: whether a registry gave the identity.
    """

    reference: str
    identity: str
    why: str = ""
    registered: bool = False

    @property
    def pinned(self) -> str:
        """What a build is given: with its digest where there is one, for a tag may be moved after it was looked at."""
        return f"{self.reference}@{self.identity}" if self.registered and "@" not in self.reference else self.reference


def select(client: docker.DockerClient, settings: Settings) -> Base:
    """The base to build on: the one asked for if it is here or can be pulled, else the stand-in.

    A stand-in never replaces a base that somebody asked for by name.

    Raises:
        PreflightError: none can be had.
        EngineError: the engine went away.
    """
    wanted = settings.base_image
    with translating_errors("looking for the base image"):
        found = _look(client, wanted)
        if found:
            return found
        if settings.sources["base_image"] == "default":
            standin = _look(client, naming.STANDIN_BASE)
            if standin:
                return replace(standin, why=f"{wanted} is not on this machine; {naming.STANDIN_BASE} is")
        try:
            return Base(reference=wanted, identity=client.images.get_registry_data(wanted).id, registered=True)
        except APIError as error:
            raise PreflightError(
                f"the base image {wanted} is neither on this machine nor can it be pulled",
                why=str(error.explanation or error)[:300],
                remedy="`docker/base/bootstrap` makes a stand-in from Debian's packages, "
                "`docker load` brings one along, --base-image names another, --engine host needs none",
            ) from error


def find_local(client: docker.DockerClient, reference: str) -> str | None:
    """Identity of an image that is on this machine, or None.

    Raises:
        EngineError: the engine went away.
    """
    with translating_errors("looking for an image"):
        found = _look(client, reference)
        return found.identity if found else None


def _look(client: docker.DockerClient, reference: str) -> Base | None:
    """An image that is on this machine."""
    try:
        image = client.images.get(reference)
    except ImageNotFound:
        return None
    digest = _identify(reference, image.attrs.get("RepoDigests") or [])
    return Base(reference=reference, identity=digest or str(image.id), registered=bool(digest))


def _identify(reference: str, digests: Sequence[str]) -> str:
    """The digest that the reference's own registry gave the image, so that a pull changes no lock; empty without one.

    The engine writes each as ``REPOSITORY@sha256:…``.
    """
    repository = re.sub(r"(:[\w][\w.-]*)?(@.*)?$", "", reference)
    found = (text.partition("@") for text in digests)
    return next((value for name, _, value in found if name == repository), "")
