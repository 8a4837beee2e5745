"""Which engine: the one asked for, or the best that this machine has, saying why."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.errors import EngineError, PreflightError
from toolkit.settings import Settings

if TYPE_CHECKING:
    from toolkit.engine.protocol import Engine, Environment


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An engine and the reason for it, in words for a person."""

    engine: "Engine"
    why: str


def choose(settings: Settings, *, target: str = "train", tag: str = "") -> Choice:
    """Choose an engine.

    ``auto`` takes the container engine when it can build here and now, else the host.

    Args:
        settings: the settings; ``settings.engine`` says what is asked.
        target: stage of the Dockerfile, for a container engine.
        tag: name of the image, for a container engine.

    Raises:
        EngineError: ``docker`` was asked for and does not answer.
        PreflightError: ``docker`` was asked for and has no base image.
    """
    if settings.engine == "host":
        return Choice(engine=_take_host(settings), why="asked for")
    try:
        return _take_docker(settings, target=target, tag=tag)
    except (EngineError, PreflightError) as error:
        if settings.engine == "docker":
            raise
        return Choice(engine=_take_host(settings), why=error.what)


def adopt(settings: Settings, reference: str) -> "tuple[Engine, Environment]":
    """A container engine, and an image that is there already.

    Raises:
        EngineError: no engine answers.
        UsageError: no image of that name is here.
    """
    from toolkit.engine.base import Base
    from toolkit.engine.client import connect
    from toolkit.engine.docker import DockerEngine

    engine = DockerEngine(connect(), Base(reference="", identity=""), state=Path(settings.state))
    return engine, engine.adopt(reference)


def _take_host(settings: Settings) -> "Engine":
    from toolkit.engine.host import HostEngine

    return HostEngine(Path(settings.state), settings.ca_bundle)


def _take_docker(settings: Settings, *, target: str, tag: str) -> Choice:
    # The SDK takes longer to import than `toolkit matrix` takes to run: only who needs it pays.
    from toolkit.engine import base
    from toolkit.engine.client import connect, require_buildx
    from toolkit.engine.docker import DockerEngine

    client = connect()
    require_buildx()
    chosen = base.select(client, settings)
    engine = DockerEngine(
        client, chosen, state=Path(settings.state), ca_bundle=settings.ca_bundle, target=target, tag=tag
    )
    return Choice(engine=engine, why=chosen.why or f"base {chosen.reference}")
