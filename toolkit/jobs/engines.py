"""Chooses the engine of a command, and makes it from the settings."""

from dataclasses import dataclass
from pathlib import Path

from toolkit.base.errors import EngineError, PreflightError, UsageError
from toolkit.engine import Engine, Environment
from toolkit.engine.host import HostEngine
from toolkit.engine.packed import PACKERS
from toolkit.versions.settings import Settings


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    engine: Engine
    why: str


def choose_engine(settings: Settings, *, target: str = "train", tag: str = "") -> EngineChoice:
    """Choose an engine.

    For an archive, ``auto`` takes the first of :data:`PACKERS`. Without one it takes Docker if it can build here, else
    the host. Raises EngineError or PreflightError.
    """
    if settings.engine == "host":
        return EngineChoice(engine=make_host_engine(settings), why="asked for")
    if settings.engine in PACKERS or (settings.engine == "auto" and settings.archive):
        packer = PACKERS.get(settings.engine) or next(iter(PACKERS.values()))
        return EngineChoice(engine=packer(Path(settings.state), settings.archive), why="asked for")
    try:
        return _choose_docker(settings, target=target, tag=tag)
    except (EngineError, PreflightError) as error:
        if settings.engine == "docker":
            raise
        return EngineChoice(engine=make_host_engine(settings), why=error.what)


def adopt_image(settings: Settings, reference: str) -> tuple[Engine, Environment]:
    """Return the container engine and an existing image. Raises EngineError, and UsageError if there is none."""
    from toolkit.engine.client import BaseImage, connect
    from toolkit.engine.docker import DockerEngine

    engine = DockerEngine(connect(), BaseImage(reference="", identity=""), state=Path(settings.state))
    return engine, engine.adopt(reference)


def make_host_engine(settings: Settings) -> HostEngine:
    packages = Path(settings.downloads) / "packages" if settings.downloads else None
    return HostEngine(Path(settings.state), settings.ca_bundle, packages if packages and packages.is_dir() else None)


def _choose_docker(settings: Settings, *, target: str, tag: str) -> EngineChoice:
    # Imported here because the SDK takes longer to import than `toolkit matrix` takes to run.
    from toolkit.engine import bundle
    from toolkit.engine.client import BaseImage, connect, require_buildx, select_base
    from toolkit.engine.docker import DockerEngine

    client = connect()
    require_buildx()
    carried = bundle.read(Path(settings.downloads)) if settings.downloads else None
    if carried:
        if (python := carried.lock["spec"]["python"]) != settings.python:
            raise UsageError(
                f"{settings.downloads} was collected for Python {python}, and {settings.python} was asked for",
                remedy=f"give --python {python}, or collect again",
            )
        why = f"from {settings.downloads}"
        base = BaseImage(reference=carried.base["base"], identity=carried.base["digest"], why=why)
    else:
        base = select_base(client, settings, settings.python)
    engine = DockerEngine(
        client,
        base,
        state=Path(settings.state),
        ca_bundle=settings.ca_bundle,
        target=target,
        tag=tag,
        carried=carried,
    )
    return EngineChoice(engine=engine, why=base.why or f"base {base.reference}")
