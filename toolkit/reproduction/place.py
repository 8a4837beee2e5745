"""Where a run is repeated: the environment that it was made in, or one made of the same, or none."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit import pipeline, training
from toolkit.audit import environment as environments
from toolkit.audit import origins, parent
from toolkit.audit.record import RunRecord
from toolkit.audit.run import compare_environments
from toolkit.console import Console
from toolkit.engine import Engine, Environment, Job, Mount, host
from toolkit.engine.choice import adopt, choose
from toolkit.errors import EngineError, JobError, PreflightError, UsageError
from toolkit.findings import require
from toolkit.project import shorten
from toolkit.settings import Settings
from train.config import TrainConfig

PROBE = Path(__file__).parent / "inside" / "probe.py"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An engine, and an environment that is there or can be made.

    Attributes:
        engine: where it runs.
        environment: the very one of the run; None where one must be made by the settings.
        workplace: how one would be made; None where the very one is there.
    """

    engine: Engine
    environment: Environment | None = None
    workplace: pipeline.Resolved | None = None


def find(record: RunRecord, settings: Settings, wheel: str | None, console: Console, *, dry_run: bool) -> Place:
    """The environment that the run names, if it is on this machine and no other is asked for; nothing is made.

    Raises: as :func:`toolkit.pipeline.resolve`, and
        CheckError: the very environment is here, but no longer as it was made.
    """
    link = record.parent
    asked = wheel or any(settings.sources[name] == "flag" for name in ("engine", "tensorflow", "cuda", "cudnn"))
    if not asked:
        found = _find_recorded(link, settings)
        if found:
            return found
    if link and settings.sources["engine"] == "default":
        settings = replace(settings, engine="docker" if link.get("kind") == "image" else "host")
    workplace = pipeline.resolve(pipeline.Request(settings=settings, wheel=wheel, dry_run=dry_run), console)
    return Place(engine=workplace.engine, workplace=workplace)


def _find_recorded(link: Mapping[str, Any], settings: Settings) -> Place | None:
    if link.get("kind") == "environment":
        folder = parent.find_environment(link, Path(settings.state))
        if folder is None or not host.interpreter(folder).exists():
            return None
        require(environments.verify(folder), remedy=f"remove {folder}: it is made again, as it was")
        engine = choose(replace(settings, engine="host")).engine
        found = Environment(
            kind="environment", digest=str(link["digest"]), reference=shorten(folder), folder=folder, reused=True
        )
        return Place(engine=engine, environment=found)
    if link.get("kind") == "image":
        try:
            container, found = adopt(settings, str(link["digest"]))
        except (UsageError, EngineError):
            return None
        from toolkit.audit import image

        # An adopted image has no record of what it was made of; one that was built here has.
        folder = image.find_record(found.digest, Path(settings.state)) or found.folder
        return Place(engine=container, environment=replace(found, folder=folder))
    return None


def require_same_software(record: RunRecord, now: Mapping[str, Any]) -> str:
    """Refuse an environment that was made of another wheel or another locked set than the run's.

    Args:
        record: the run.
        now: the environment, as :func:`toolkit.training.describe_parent` says it.

    Returns:
        What is the same, in words.

    Raises:
        PreflightError: nothing is.
    """
    then = origins.flatten(record.parent)
    if not then:
        return "the run names no environment, so only the version of TensorFlow can be compared"
    known = {link["digest"]: link["kind"] for link in then}
    shared = next((link for link in origins.flatten(now) if link["digest"] in known), None)
    if shared:
        return f"the same {shared['kind']} {shared['digest']}"
    raise PreflightError(
        "this is not the software that the run was made with",
        why="; ".join(
            f"{name}: {', '.join(str(link['kind']) + ' ' + str(link['digest'])[:19] for link in links)}"
            for name, links in (("then", then), ("now", origins.flatten(now)))
        ),
        remedy="give the same --wheel, --tensorflow, --cuda and --cudnn as then, from the same revision of this clone",
    )


def require_same_machine(record: RunRecord, found: Mapping[str, Any]) -> None:
    """Refuse what decides the bits and is another: processor or GPU, TensorFlow, threads, batch size, data.

    Raises:
        PreflightError: something is.
    """
    other = compare_environments(record.environment, found)
    if other:
        raise PreflightError(
            "the run cannot give the same bits here",
            why=other,
            remedy="run it where it was made: bits are promised for the same hardware, software and data only",
        )


def plan_probe(arguments: Sequence[str], config: TrainConfig, *, gpu: bool) -> Job:
    """The training job with the question in its place: the same arguments, mounts, network and GPUs."""
    job = training.plan(arguments, config, parent={}, gpu=gpu)
    question = Mount(source=PROBE, target="/opt/toolkit/probe.py")
    mounts = (question, *(mount for mount in job.mounts if mount.source != config.run_dir))
    return replace(job, title="probe", argv=("-P", question, *job.argv[3:]), mounts=mounts, terminal=False)


def probe(engine: Engine, environment: Environment, job: Job) -> dict[str, Any]:
    """What the job would record of its circumstances there.

    Raises:
        JobError: it cannot run there at all, or not read the data; it has said why.
    """
    heard: list[str] = []
    code = engine.run(environment, job, heard.append)
    try:
        value = json.loads(heard[-1]) if not code else None
    except (ValueError, IndexError):
        value = None
    if not isinstance(value, dict):
        raise JobError("looking at the environment", code or 1, why="" if code else "it did not answer")
    return value
