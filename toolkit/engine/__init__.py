"""Defines what an engine is: it makes environments, of locked packages and perhaps a user's wheel, and runs jobs."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from toolkit.base import digest, naming, project
from toolkit.base.console import Console
from toolkit.base.errors import CheckError
from toolkit.versions.set import Set


@dataclass(frozen=True, kw_only=True)
class Mount:
    source: Path  # the path on the host; it must exist
    target: str  # the path inside a container; a job on the host uses ``source``
    writable: bool = False
    shared: bool = False  # whether other jobs may write there at the same time


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network of a job that listens, which no other job is in. On the host it has no name: it is the machine's."""

    name: str = ""
    make: "Commands" = ()  # the commands that make this network, and that remove it
    remove: "Commands" = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    title: str  # a word for logs and container names
    argv: tuple[str | Mount, ...]  # arguments of the interpreter; a :class:`Mount` among them stands for its path
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()  # names of this program's variables that the job gets too; values may be secrets
    network: bool = False
    gpu: bool = False
    own_network: Network | None = None  # in which it listens
    published: tuple[str, int] | None = None  # address and port of this machine that are those of the job's port
    terminal: bool = False  # whether it may draw on the user's terminal
    deadline: float = 0  # seconds until it is stopped and counts as failed; 0 for none
    grace: float = 30  # seconds between asking it to stop and killing it
    kept: str = ""  # what is left of its work if it is cut off: ``training goes on from its last checkpoint``

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the job. One that is given GPUs ends with an error if it finds none."""
        return {**self.environment, **({naming.GPU_VARIABLE: "1"} if self.gpu else {})}


Commands = tuple[tuple[str, ...], ...]
Listener = Callable[[str], None]
"""Receives a job's standard output, line by line."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentSpec(Set):
    requirements: str = "cpu"  # name of the locked set, a file of docker/requirements without its ending
    wheel: Path | None = None  # a file to install in place of the published wheel
    cuda_wheel: bool = True  # whether this wheel has code for GPUs; the published one has it in a set for CUDA
    instructions: tuple[str, ...] = ()  # of the processor that this wheel needs beyond AVX, as /proc/cpuinfo names them

    @property
    def uses_gpu(self) -> bool:
        """Whether its TensorFlow can compute on a GPU: it has the code, and NVIDIA's libraries are beside it."""
        return bool(self.cuda) and self.cuda_wheel

    @property
    def inputs(self) -> dict[str, str]:
        wheel = {"wheel": digest.digest_file(self.wheel)} if self.wheel else {}
        return {"requirements": digest.digest_file(self.locked), **wheel}

    @property
    def locked(self) -> Path:
        return project.locate(f"docker/requirements/{self.requirements}.txt")


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The C library and Python (``X.Y``) that a wheel must run on; empty if they are not known yet."""

    glibc: str = ""
    python: str = ""


@dataclass(frozen=True, kw_only=True)
class EnvironmentPlan:
    spec: EnvironmentSpec
    kind: str  # ``image`` or ``environment``, as its manifest says
    reference: str  # image tag, or folder of a virtual environment
    digest: str  # content digest of all inputs
    folder: Path  # where its manifest and logs are kept
    inputs: Mapping[str, str]  # digest of each input by name
    commands: Commands
    origin: str = ""  # where its TensorFlow comes from, if that is neither a wheel nor the locked set
    force: bool = False  # whether it is made even where it exists, because that one is not trusted


@dataclass(frozen=True, kw_only=True)
class Environment:
    kind: str  # ``image`` or ``environment``, as its manifest says
    digest: str  # content digest of the image, or of the environment's plan
    reference: str  # image tag or folder
    folder: Path  # where its manifest, logs and smoke reports are kept
    reused: bool  # whether it existed and was up to date
    instructions: tuple[str, ...] = ()  # of the processor that its TensorFlow needs beyond AVX


class Engine(Protocol):
    name: str

    def has_gpu(self) -> bool: ...

    def find_platform(self, *, fetch: bool) -> Platform:
        """Return what is known of the C library and Python of environments. ``fetch``: pull a missing base image."""
        ...

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan: ...

    def find(self, plan: EnvironmentPlan) -> Environment | None: ...

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Make an environment unless it is up to date.

        Raises PreflightError if there is too little space, and BuildError.
        """
        ...

    def commands(self, reference: str, job: Job) -> Commands:
        """Return the commands that are equivalent to :meth:`run`, for an image tag or an environment's folder."""
        ...

    def plan_network(self) -> Network: ...

    def join(self, network: Network) -> AbstractContextManager[None]:
        """Make a network, and remove it at the end. Raises EngineError if it cannot be made."""
        ...

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """Run a job to its end, and return its exit code: 128 + the number of the signal that ended it.

        ``listener`` gets each line of standard output, which otherwise goes to the user. A KeyboardInterrupt
        stops and removes the job. Raises EngineError if the engine stopped answering, and CheckError if the deadline
        is over.
        """
        ...


@contextmanager
def deadline(job: Job, stop: Callable[[], object]) -> Iterator[None]:
    """Stop a job after its time limit, which the SDK's streams lack (docker-py#2651). Raises CheckError then."""
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        stop()

    timer = threading.Timer(job.deadline, expire)
    timer.daemon = True
    if job.deadline:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if expired.is_set():
        raise CheckError(
            f"{job.title} did not end within {job.deadline:.0f} s and was stopped",
            remedy="try again if the machine was under heavy load; otherwise see the last lines of its output",
        )
