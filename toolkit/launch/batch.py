"""Writes what a batch system reads to start workers: a Slurm script."""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.base import project
from toolkit.base.errors import (
    PreflightError,
    UsageError,
)
from toolkit.jobs.training_job import GRACE_SECONDS
from train.cluster.tf_config import HIGHEST_PORT
from train.peers import PORT

RESTARTS = 100
"""How often a job goes back to the queue, so that one which never saves anything ends."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a worker gets; what is empty is left to the scheduler."""

    cpus: int = 0
    memory: str = ""  # as the scheduler writes it: 16G for Slurm, 16Gi for Kubernetes
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    nodes: int
    resources: Resources  # its GPUs are those of a node, each with a worker of its own
    partition: str = ""
    account: str = ""
    time: str = ""  # limit, as 1-12:00:00
    port: int = PORT

    @property
    def workers(self) -> int:
        return self.nodes * max(1, self.resources.gpus)


def start_peers(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of every worker, which finds its place by Slurm's variables."""
    module = command.index("train")
    return (*command[:module], "train.peers", "slurm", *command[module + 1 :])


def fill_in_interpreter(command: Sequence[str], interpreter: str) -> tuple[str, ...]:
    """Return a host job's command with its files named from the root, and perhaps another interpreter."""
    first = next(index for index, word in enumerate(command) if word.endswith("/bin/python"))
    python = interpreter or str(Path(command[first]).absolute())
    return (*command[:first], python, *command[first + 1 :])


def write_slurm(name: str, command: Sequence[str], request: SlurmRequest) -> str:
    """Return the script. ``command`` runs one worker; it is the same on all nodes."""
    resources = request.resources
    values = {
        "name": name,
        "nodes": request.nodes,
        "partition": request.partition,
        "account": request.account,
        "time": request.time,
        "port": request.port,
        "memory": resources.memory,
        "cpus": resources.cpus,
        "gpus": resources.gpus,
        "tasks": max(1, resources.gpus),
        "folder": Path.cwd(),
        "log": f"{name}-%j.log",
        "command": command,
        "grace": GRACE_SECONDS,
        "restarts": RESTARTS,
    }
    return _render("slurm.sh.j2", values, lambda value: shlex.quote(str(value)))


def require_ports(request: SlurmRequest) -> None:
    """Raise a UsageError if there are not enough ports from the first on, one for each worker."""
    if request.port + request.workers - 1 > HIGHEST_PORT:
        raise UsageError(
            f"{request.workers} workers need the ports from {request.port} on, and {HIGHEST_PORT} is the last",
            remedy=f"give --port {PORT}, or another below {HIGHEST_PORT + 2 - request.workers}",
        )


def require_slurm() -> None:
    """Raise a PreflightError where no job can be submitted."""
    if shutil.which("sbatch") is None:
        raise PreflightError(
            "sbatch is not on this machine",
            why="only a machine of a Slurm cluster can submit jobs to it",
            remedy="run this there, or print the script with --dry-run",
        )


def submit(script: Path) -> str:
    """Submit a script, and return the job's number. Raises PreflightError if Slurm refuses it."""
    done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreflightError(
            "Slurm refuses the job", why=done.stderr.strip(), remedy=f"the script is {project.shorten(script)}"
        )
    return done.stdout.strip().partition(";")[0]


def _render(name: str, values: Mapping[str, Any], write: Callable[[Any], str]) -> str:
    """Return a template filled with values, each of which ``write`` makes safe for the language of the template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to load

    templates = Environment(
        loader=FileSystemLoader(project.locate("toolkit/launch/templates")),
        autoescape=False,  # noqa: S701 - these are not pages
        finalize=write,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(name).render(values)
