"""One program to run in an environment, described without saying where."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A host path that the job sees.

    Attributes:
        source: the path on the host; it must exist.
        target: where a container finds it. On the host the job is given ``source`` itself.
        writable: whether the job may change it.
        shared: whether other jobs may write there at the same time.
    """

    source: Path
    target: str
    writable: bool = False
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """A Python program, its arguments and what it may touch.

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
"""Hears a job's standard output, line by line, instead of the user."""
