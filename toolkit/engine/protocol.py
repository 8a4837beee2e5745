"""What every engine can do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolkit.console import Console
from toolkit.engine.job import Job, Listener
from toolkit.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A place where TensorFlow is installed: an image, or a virtual environment.

    Attributes:
        kind: ``image`` or ``environment``, as its manifest says.
        digest: content digest of the image, or of the environment's plan.
        reference: what a person calls it: image tag or folder.
        folder: where its manifest, logs and smoke reports are kept.
        reused: whether it was there already.
    """

    kind: str
    digest: str
    reference: str
    folder: Path
    reused: bool


@dataclass(frozen=True, kw_only=True)
class EnvironmentPlan:
    """What making an environment would take.

    Attributes:
        reference: what it will be called.
        commands: what would be run, paste-able.
    """

    reference: str
    commands: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What a wheel meets where it is installed; empty where it is not known before that place is made.

    Attributes:
        glibc: version of the C library.
        python: ``X.Y`` of the interpreter.
    """

    glibc: str = ""
    python: str = ""


class Engine(Protocol):
    """Makes environments and runs jobs in them."""

    name: str

    def has_gpu(self) -> bool:
        """Whether a job that asks for the GPUs can be given some."""
        ...

    def find_platform(self, *, fetch: bool) -> Platform:
        """What environments stand on.

        Args:
            fetch: get what must be here to be looked at, such as a base image.
        """
        ...

    def plan(self, recipe: Recipe) -> EnvironmentPlan:
        """What :meth:`prepare` would do; nothing is started."""
        ...

    def prepare(self, recipe: Recipe, console: Console) -> Environment:
        """Make the environment, or find it made.

        Raises:
            BuildError: making it failed; the log's path and last lines are in the message.
            PreflightError: this machine cannot hold it.
        """
        ...

    def commands(self, environment: str, job: Job) -> list[list[str]]:
        """The commands that :meth:`run` amounts to in an environment of that reference, paste-able."""
        ...

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """Run a job to its end; on Ctrl-C stop it, leave nothing behind, and let the interrupt pass.

        Args:
            environment: where.
            job: what.
            listener: hears standard output line by line; without one it is passed on.

        Returns:
            The job's exit code, 128 + number where a signal ended it.

        Raises:
            EngineError: the engine went away.
            CheckError: the job outlived its deadline.
        """
        ...
