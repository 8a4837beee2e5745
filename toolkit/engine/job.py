"""What every engine works with: a job, the environment it runs in, and the protocol that both engines implement."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

from toolkit.console import Console
from toolkit.environment import EnvironmentSpec, Platform
from toolkit.errors import CheckError


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A host path that the job sees.

    Attributes:
        source: the path on the host; it must exist.
        target: the path inside a container. A job on the host gets ``source`` itself.
        writable: whether the job may change it.
        shared: whether other jobs may write there at the same time.
    """

    source: Path
    target: str
    writable: bool = False
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """One Python program to run in an environment, described without saying which engine runs it.

    Attributes:
        title: a word for logs and container names.
        argv: arguments of the interpreter; a :class:`Mount` among them stands for its path.
        mounts: what the job sees.
        environment: variables.
        network: whether it may reach the network.
        gpu: whether it gets the GPUs.
        terminal: whether it may draw on the user's terminal.
        deadline: seconds until it is stopped and counts as failed; 0 for none.
        grace: seconds between asking it to stop and killing it.
    """

    title: str
    argv: tuple[str | Mount, ...]
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    gpu: bool = False
    terminal: bool = False
    deadline: float = 0
    grace: float = 30


Listener = Callable[[str], None]
"""Receives a job's standard output, line by line."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentPlan:
    """How an environment is made.

    Attributes:
        spec: what it will hold.
        kind: ``image`` or ``environment``, as its manifest says.
        reference: image tag, or folder of a virtual environment.
        digest: content digest of everything that goes in.
        folder: where its manifest and logs are kept.
        inputs: digest of each input by name.
        commands: what is executed, in order.
    """

    spec: EnvironmentSpec
    kind: str
    reference: str
    digest: str
    folder: Path
    inputs: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """An image or a virtual environment with TensorFlow in it.

    Attributes:
        kind: ``image`` or ``environment``, as its manifest says.
        digest: content digest of the image, or of the environment's plan.
        reference: image tag or folder.
        folder: where its manifest, logs and smoke reports are kept.
        reused: whether it was up to date.
    """

    kind: str
    digest: str
    reference: str
    folder: Path
    reused: bool


class Engine(Protocol):
    """Makes environments and runs jobs in them."""

    name: str

    def has_gpu(self) -> bool:
        """Return whether a job that asks for the GPUs can be given some."""
        ...

    def find_platform(self, *, fetch: bool) -> Platform:
        """Return the C library and Python of new environments.

        Args:
            fetch: pull the base image if it is not on this machine; otherwise nothing is known of it.
        """
        ...

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        """Plan an environment; nothing is started."""
        ...

    def find(self, plan: EnvironmentPlan) -> Environment | None:
        """Return the environment of a plan, or None where it is not made or out of date."""
        ...

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Carry out a plan, unless its environment is up to date.

        Raises:
            BuildError: a command failed; the log's path and last lines are in the message.
            PreflightError: this machine has too little space.
        """
        ...

    def commands(self, reference: str, job: Job) -> list[list[str]]:
        """Return the commands that :meth:`run` amounts to in the environment of that reference, ready to paste."""
        ...

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """Run a job to its end; a Ctrl-C stops it, leaves nothing behind, and is raised again.

        Args:
            environment: where the job runs.
            job: what runs.
            listener: receives standard output line by line; without one it is passed on to the user.

        Returns:
            The job's exit code, 128 + number where a signal ended it.

        Raises:
            EngineError: the engine went away.
            CheckError: the job outlived its deadline.
        """
        ...


class Deadline:
    """Stops a job when its time is up. The SDK's streams and pipes have no limit of their own (docker-py#2651).

    Args:
        seconds: the time; 0 for no limit.
        stop: ends the job; called at most once, from another thread.
    """

    def __init__(self, seconds: float, stop: Callable[[], object]) -> None:
        self._seconds = seconds
        self._stop = stop
        self._expired = threading.Event()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._seconds:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def check(self, title: str) -> None:
        """Raises:
        CheckError: the time was up before the job ended.
        """
        if self._expired.is_set():
            raise CheckError(
                f"{title} did not end within {self._seconds:.0f} s and was stopped",
                remedy="a machine under heavy load may only need another try; else look at its last lines",
            )

    def _expire(self) -> None:
        self._expired.set()
        self._stop()
