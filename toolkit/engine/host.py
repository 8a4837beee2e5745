"""The host as an engine: jobs run by the interpreter of a virtual environment.

For machines without a container engine. The isolation of a container is not to be had here, and is not claimed.
"""

import os
import platform
import subprocess
from pathlib import Path

from toolkit import processes, project
from toolkit.console import Console
from toolkit.engine import venv
from toolkit.engine.deadline import Deadline
from toolkit.engine.job import Job, Listener, Mount
from toolkit.engine.ownership import give_to_parent
from toolkit.engine.protocol import Environment, EnvironmentPlan, Platform
from toolkit.recipe import Recipe


class HostEngine:
    """Runs jobs with an interpreter of this machine.

    Args:
        state: folder of environments, logs and manifests.
        ca_bundle: PEM file for downloads, or empty.
    """

    name = "host"

    def __init__(self, state: Path, ca_bundle: str = "") -> None:
        self._state = state.resolve()
        self._ca_bundle = ca_bundle

    def has_gpu(self) -> bool:
        """See :class:`toolkit.engine.protocol.Engine`."""
        return Path("/dev/nvidia0").exists()

    def find_platform(self, *, fetch: bool) -> Platform:  # noqa: ARG002 - everything is here
        """See :class:`toolkit.engine.protocol.Engine`. The interpreter is chosen by the recipe, not by the machine."""
        return Platform(glibc=platform.libc_ver()[1])

    def plan(self, recipe: Recipe) -> EnvironmentPlan:
        """See :class:`toolkit.engine.protocol.Engine`."""
        planned = venv.plan(recipe, self._state)
        return EnvironmentPlan(reference=project.shorten(planned.folder), commands=planned.commands)

    def prepare(self, recipe: Recipe, console: Console) -> Environment:
        """See :class:`toolkit.engine.protocol.Engine`."""
        planned = venv.plan(recipe, self._state)
        reused = venv.make(planned, recipe, console, ca_bundle=self._ca_bundle)
        return Environment(
            kind="environment",
            digest=planned.digest,
            reference=project.shorten(planned.folder),
            folder=planned.folder,
            reused=reused,
        )

    def commands(self, environment: str, job: Job) -> list[list[str]]:
        """See :class:`toolkit.engine.protocol.Engine`."""
        arguments = [str(part.source) if isinstance(part, Mount) else part for part in job.argv]
        variables = [f"PYTHONPATH={project.ROOT}", *(f"{name}={value}" for name, value in job.environment.items())]
        return [["env", *variables, str(venv.interpreter(Path(environment))), *arguments]]

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """See :class:`toolkit.engine.protocol.Engine`."""
        with venv.using(environment.folder):
            try:
                return self._run(environment, job, listener)
            finally:
                give_to_parent(job.mounts)

    def _run(self, environment: Environment, job: Job, listener: Listener | None) -> int:
        process = subprocess.Popen(
            self.commands(environment.reference, job)[0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if listener else None,
            text=True,
            env={
                **os.environ,
                **venv.find_cuda(environment.folder),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            # Its own session: a Ctrl-C reaches the job once, through us, and not a second time from the terminal.
            start_new_session=True,
        )
        overdue = Deadline(job.deadline, lambda: processes.stop(process, grace=job.grace))
        try:
            with overdue:
                for line in process.stdout or ():
                    if listener:
                        listener(line.rstrip("\n"))
                code = process.wait()
        except BaseException:
            processes.stop(process, grace=job.grace)
            raise
        overdue.check(job.title)
        return processes.shell_code(code)
