"""Prepares and runs a rehearsal: the training job on an emulated GPU, which ``train.rehearsal`` makes.

It runs on the host, under every engine setting: the emulation is compiled for the TensorFlow that it is used with, and
the images have no compiler. It needs no GPU, no driver and no network.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from toolkit.console import Console
from toolkit.engine import Environment, Job, Mount
from toolkit.engine.host import HostEngine
from toolkit.environment import EnvironmentSpec
from toolkit.errors import JobError, UnsupportedError, UsageError
from toolkit.settings import Settings
from toolkit.versions import load_table
from train.rehearsal.cli import read

_LIBRARY: Final = "rehearsal"
"""Folder of compiled emulations, inside the environment's."""


def choose_recipe(settings: Settings) -> EnvironmentSpec:
    """Choose what the environment holds.

    Raises:
        UnsupportedError: another TensorFlow or Python was asked for.
        UsageError: a container engine was asked for.
    """
    locked = load_table().rehearsal
    if settings.tensorflow != locked.tensorflow or settings.python not in locked.python:
        raise UnsupportedError(
            f"no rehearsal with TensorFlow {settings.tensorflow} for Python {settings.python}",
            why=f"the emulated GPU is for TensorFlow {locked.tensorflow} and Python {', '.join(locked.python)}",
            remedy="leave --tensorflow out",
        )
    if settings.engine == "docker":
        raise UsageError(
            "a rehearsal runs on the host",
            why="the emulated GPU is compiled for the TensorFlow at hand, and the images have no compiler",
            remedy="leave --engine out; the job in a container is the same one",
        )
    return EnvironmentSpec(tensorflow=settings.tensorflow, python=settings.python, requirements=locked.requirements)


def make_engine(settings: Settings) -> HostEngine:
    """Return the engine that rehearsals run on."""
    return HostEngine(Path(settings.state), settings.ca_bundle)


def plan(arguments: Sequence[str], environment: str) -> Job:
    """Plan the job.

    Args:
        arguments: of ``python -m train.rehearsal``.
        environment: the environment's folder.

    Raises:
        TrainError: an argument makes no sense.
    """
    read(arguments)
    library = Mount(source=Path(environment) / _LIBRARY, target="/library", writable=True)
    # -P: a train.py in the current folder is not what is meant.
    return Job(
        title="rehearse",
        argv=("-P", "-m", "train.rehearsal", *arguments, "--library-cache", library),
        mounts=(library,),
        terminal=True,
    )


def run(engine: HostEngine, environment: Environment, arguments: Sequence[str], console: Console) -> None:
    """Run a rehearsal to its end, and show its report.

    Raises:
        JobError: it found something wrong, or could not run; it has said so itself.
    """
    if not console.json:
        code = engine.run(environment, plan(arguments, environment.reference))
    else:
        lines: list[str] = []
        code = engine.run(environment, plan([*arguments, "--json"], environment.reference), lines.append)
        console.result(_read_report(lines), "")
    if code:
        raise JobError("the rehearsal", code)


def _read_report(lines: Sequence[str]) -> dict[str, Any]:
    """The report; empty where the job failed before it had one, and has said why."""
    try:
        value = json.loads("\n".join(lines))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
