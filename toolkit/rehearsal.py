"""Plans and runs a rehearsal on the host. The emulated GPU has to be compiled, and the images have no compiler."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rehearsal.cli import read
from toolkit import pipeline
from toolkit.console import Console
from toolkit.engine import Environment, EnvironmentSpec, Job, Mount
from toolkit.engine.host import HostEngine
from toolkit.errors import JobError, UnsupportedError, UsageError
from toolkit.settings import Settings
from toolkit.steps import Step, Task
from toolkit.versions import load_table
from toolkit.wheel import inspection

_LIBRARY: Final = "rehearsal"
"""Folder of compiled emulations inside the environment."""


def choose_spec(settings: Settings, wheel: Path | None = None) -> EnvironmentSpec:
    """Return the environment: the rehearsals' own set, or that of a user's wheel without NVIDIA's libraries.

    Raises UnsupportedError if there is no emulation for these versions or no set for the wheel, UsageError if it would
    not run on the host, and IntegrityError if the wheel is damaged.
    """
    if settings.engine in {"docker", "apptainer"}:
        raise UsageError(
            "a rehearsal runs on the host",
            why="the emulated GPU is compiled for the TensorFlow at hand, and the images have no compiler",
            remedy="leave --engine out; the job in a container is the same one",
        )
    if wheel:
        return _fit(settings, wheel)
    locked = load_table().rehearsal
    load_table().require_gpu_code(settings.platform, "no rehearsal", "run it on a machine of linux/amd64")
    if settings.tensorflow != locked.tensorflow or settings.python not in locked.python:
        raise UnsupportedError(
            f"no rehearsal with TensorFlow {settings.tensorflow} for Python {settings.python}",
            why=f"the emulated GPU is for TensorFlow {locked.tensorflow} and Python {', '.join(locked.python)}",
            remedy="leave --tensorflow out, or give another wheel: --wheel FILE",
        )
    return EnvironmentSpec(tensorflow=settings.tensorflow, python=settings.python, requirements=locked.requirements)


def _fit(settings: Settings, wheel: Path) -> EnvironmentSpec:
    """Return the environment of a wheel: with the CUDA set that was asked for, else with the newest locked one."""
    asked = settings.tensorflow
    if settings.sources["tensorflow"] == "default":
        asked = inspection.inspect(wheel).public_version
    if not settings.cuda:
        sets = (item for item in reversed(load_table().published) if item.cuda and item.tensorflow == asked)
        chosen = next((item for item in sets if settings.python in item.python), None)
        if chosen is None:
            raise UnsupportedError(
                f"no locked CUDA set is for TensorFlow {asked} and Python {settings.python}",
                remedy="`toolkit lock` makes one; then name it here by --tensorflow, --cuda and --cudnn",
            )
        settings = replace(settings, cuda=chosen.cuda, cudnn=chosen.cudnn)
    spec = pipeline.choose_spec(replace(settings, tensorflow=asked))
    return replace(
        pipeline.use_wheel(spec, wheel, pipeline.make_host_engine(settings).find_platform(fetch=False)), emulated=True
    )


def require_machine_code(arguments: Sequence[str], wheel: Path) -> list[str]:
    """Return the option by which a rehearsal fails on PTX, if the wheel says that it has machine code for the GPU."""
    major, minor = read(arguments).request.device.capability
    named = inspection.inspect(wheel).build.capabilities
    return ["--require-machine-code"] if f"sm_{major}{minor}" in named else []


def plan_tasks(
    arguments: Sequence[str], settings: Settings, console: Console, wheel: Path | None = None
) -> list[Task[Any]]:
    """Return the tasks: make the environment, and rehearse in it. Raises ToolkitError if an argument is invalid."""
    read(arguments)
    engine = pipeline.make_host_engine(settings)
    plan = engine.plan(choose_spec(settings, wheel))
    arguments = [*arguments, *(require_machine_code(arguments, wheel) if wheel else [])]
    job = plan_job(arguments, plan.reference)

    def make() -> Environment:
        environment = engine.prepare(plan, console)
        console.heading("venv", f"{'reused' if environment.reused else 'made'} {environment.reference}")
        return environment

    prepared = Task(
        Step(title="environment", commands=plan.commands, inputs=plan.inputs, outputs=(plan.reference,)), make
    )
    step = Step(title="rehearse", commands=engine.commands(plan.reference, job))
    rehearsed = Task(step, lambda: run(engine, prepared.result, arguments, console))
    return [prepared, rehearsed]


def plan_job(arguments: Sequence[str], environment: str) -> Job:
    read(arguments)
    library = Mount(source=Path(environment) / _LIBRARY, target="/library", writable=True)
    # -P: do not import a train.py of the current folder.
    return Job(
        title="rehearse",
        argv=("-P", "-m", "rehearsal", *arguments, "--library-cache", library),
        mounts=(library,),
        terminal=True,
    )


def run(engine: HostEngine, environment: Environment, arguments: Sequence[str], console: Console) -> None:
    if not console.json:
        code = engine.run(environment, plan_job(arguments, environment.reference))
    else:
        lines: list[str] = []
        code = engine.run(environment, plan_job([*arguments, "--json"], environment.reference), lines.append)
        console.result(_read_report(lines), "")
    if code:
        raise JobError("the rehearsal", code)


def _read_report(lines: Sequence[str]) -> dict[str, Any]:
    try:
        value = json.loads("\n".join(lines))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
