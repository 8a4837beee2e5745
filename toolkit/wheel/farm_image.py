"""Makes the image in which a build farm runs Bazel's actions: each tool is at the path where the build has it."""

from dataclasses import dataclass
from pathlib import Path

from toolkit.base import naming, ownership
from toolkit.base.console import Console
from toolkit.base.errors import EngineError
from toolkit.base.steps import Step, Task
from toolkit.engine import buildx
from toolkit.engine.client import connect, inspect, read_files, require_buildx
from toolkit.wheel.build_plan import PlannedWheel

TARGET = "bazel-worker"
NAME = "/etc/toolkit/toolchain"
"""File of the image with the toolchain's name. The build has the same, and makes the instance name of it."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    reference: str
    digest: str
    toolchain: str  # name of the toolchain, 16 hex digits


def plan_task(planned: PlannedWheel, state: Path, console: Console, *, tag: str) -> Task[Worker]:
    """Return the task that makes the image of a wheel's workers.

    ``tag``: the image's name. If it is empty, a name is made from the plan.
    """
    plan = planned.plan
    name = tag or naming.name_image(TARGET, f"cuda-{cuda}" if (cuda := plan.lock.versions.cuda) else "cpu", plan.digest)
    command = plan.image_command(TARGET, name, {naming.OWNER_LABEL: "toolkit", naming.PLAN_LABEL: plan.digest})

    def make() -> Worker:
        require_buildx()
        buildx.build(command, log=state / f"image-{TARGET}-{plan.name}" / "build.log", console=console)
        worker = find(name, state)
        if not tag:
            ownership.record_image(state, name, worker.digest)
        return worker

    return Task(Step(title="worker", commands=(command,), inputs={"lock": plan.lock.digest}, outputs=(name,)), make)


def find(reference: str, state: Path | None = None) -> Worker:
    """Return a worker's image. Raises EngineError if the engine has none of that name."""
    image = inspect(reference)
    if image is None:
        raise EngineError(f"the engine has no image {reference}", remedy="set DOCKER_HOST to the engine of buildx")
    (name,) = read_files(connect(), image.id, NAME, state).values()
    return Worker(reference=reference, digest=image.id, toolchain=name.decode().strip())
