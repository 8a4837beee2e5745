from dataclasses import dataclass
from pathlib import Path

from toolkit.engine.host import HostEngine
from toolkit.engine.job import Engine, Environment
from toolkit.errors import EngineError, PreflightError
from toolkit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Choice:
    engine: Engine
    why: str


def choose(settings: Settings, *, target: str = "train", tag: str = "") -> Choice:
    """Choose an engine; ``auto`` means the container engine if it can build on this machine, else the host.

    Raises EngineError or PreflightError: ``docker`` was asked for and does not answer, or has no base image.
    """
    if settings.engine == "host":
        return Choice(engine=make_host_engine(settings), why="asked for")
    try:
        return _choose_docker(settings, target=target, tag=tag)
    except (EngineError, PreflightError) as error:
        if settings.engine == "docker":
            raise
        return Choice(engine=make_host_engine(settings), why=error.what)


def adopt(settings: Settings, reference: str) -> tuple[Engine, Environment]:
    """Return the container engine, and an existing image as an environment.

    Raises EngineError: no engine answers; UsageError: it has no image of that name.
    """
    from toolkit.engine.client import BaseImage, connect
    from toolkit.engine.docker import DockerEngine

    engine = DockerEngine(connect(), BaseImage(reference="", identity=""), state=Path(settings.state))
    return engine, engine.adopt(reference)


def make_host_engine(settings: Settings) -> HostEngine:
    return HostEngine(Path(settings.state), settings.ca_bundle)


def _choose_docker(settings: Settings, *, target: str, tag: str) -> Choice:
    # Imported here because the SDK takes longer to import than `toolkit matrix` takes to run.
    from toolkit.engine.client import connect, require_buildx, select_base
    from toolkit.engine.docker import DockerEngine

    client = connect()
    require_buildx()
    base = select_base(client, settings, settings.python)
    engine = DockerEngine(
        client, base, state=Path(settings.state), ca_bundle=settings.ca_bundle, target=target, tag=tag
    )
    return Choice(engine=engine, why=base.why or f"base {base.reference}")
