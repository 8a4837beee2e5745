"""Holds what engines share whose environments are folders of this machine, and whose jobs are its processes."""

import fcntl
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from toolkit.base import files, processes, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import PreflightError
from toolkit.engine import Environment, EnvironmentPlan, Job, Listener, Network, custody, deadline, gpus
from toolkit.engine.custody import Custody
from train.system import signals


class LocalEngine(ABC):
    """An engine whose environments are folders of this machine, and whose jobs are its processes."""

    def __init__(self, state: Path) -> None:
        self._state = state.resolve()
        self._examined: dict[Path, Custody] = {}

    @abstractmethod
    def _read(self, plan: EnvironmentPlan) -> Environment | None:
        """Return the environment of a plan if it is there and was made completely."""

    @classmethod
    @abstractmethod
    def examine(cls, folder: Path, identity: str) -> Custody:
        """Return whether an environment may be used. ``identity``: the digest that its manifest must have."""

    @abstractmethod
    def _make(self, plan: EnvironmentPlan, console: Console) -> None: ...

    def has_gpu(self) -> bool:
        return gpus.has_gpu()

    def plan_network(self) -> Network:
        return Network()

    def join(self, network: Network) -> AbstractContextManager[None]:  # noqa: ARG002 - the host's network exists
        return nullcontext()

    def find(self, plan: EnvironmentPlan) -> Environment | None:
        """Return the environment if this user has made it, and nothing in it has changed since.

        Raises PreflightError if others can change what the state folder holds.
        """
        seals.require_own(self._state)
        found = self._read(plan)
        if found is None:
            return None
        examined = self._examined.get(plan.folder)
        if examined is None or examined.doubt:  # another command may have made it anew meanwhile
            examined = self._examined[plan.folder] = self.examine(plan.folder, plan.digest)
        return None if examined.doubt else found

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Return the environment of a plan, or make it while no other command makes or uses it.

        Its manifest and seal are written last, so that an incomplete one is made again. A plan with ``force`` is always
        made again. Raises BuildError if it could not be made, IntegrityError if a package or an archive has other bytes
        than were promised, and PreflightError if there is too little disk, or if others can change what the state
        folder holds.
        """
        custody.open_state(plan.folder.parent)
        with using(plan.folder):  # which jobs may do at the same time
            environment = None if plan.force else self.find(plan)
        if environment is None:
            with making(plan.folder):
                environment = None if plan.force else self.find(plan)
                if environment is None:
                    examined = self._examined.pop(plan.folder, None)
                    if examined and examined.doubt:
                        kind = "image" if plan.kind == "image" else "venv"
                        console.heading(kind, f"{project.shorten(plan.folder)} is made anew: {examined.doubt}")
                    self._make(plan, console)
        custody.renew(plan.folder, self._examined.get(plan.folder))
        return environment or describe(plan, reused=False)


def describe(plan: EnvironmentPlan, *, reused: bool) -> Environment:
    return Environment(
        kind=plan.kind,
        digest=plan.digest,
        reference=plan.reference,
        folder=plan.folder,
        reused=reused,
        instructions=plan.spec.instructions,
    )


def making(folder: Path) -> AbstractContextManager[None]:
    """Hold the exclusive lock of an environment while it is made. A second command waits for it."""
    return _lock(folder, fcntl.LOCK_EX)


def using(folder: Path) -> AbstractContextManager[None]:
    """Hold a shared lock of an environment, so that no command replaces or removes it while a job uses it."""
    return _lock(folder, fcntl.LOCK_SH)


@contextmanager
def _lock(folder: Path, how: int) -> Iterator[None]:
    # filelock is not used, because it has no shared locks.
    # A link in its place would let a folder that somebody brought along empty any file.
    with files.open_own(folder.with_name(f"{folder.name}.lock")) as stream:
        files.lock_file(stream, how)
        yield


def require_space(folder: Path, needed: int, remedy: str = "run `toolkit clean`, or set TOOLKIT_STATE to one") -> None:
    """Raise a PreflightError if the disk of a folder, which need not exist yet, has fewer free bytes than needed."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PreflightError(
            f"too little disk at {folder}: {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed",
            remedy=f"free space, or take a folder on a larger disk: {remedy}",
        )


def follow(
    argv: Sequence[str],
    job: Job,
    listener: Listener | None,
    *,
    variables: Mapping[str, str] | None = None,
    stop: Callable[..., object] = processes.stop,
) -> int:
    """Run a job's command to its end, as :meth:`Engine.run` does. ``stop`` ends its process within ``grace`` s."""

    def end(process: "subprocess.Popen[str]") -> None:
        stop(process, grace=job.grace)
        if signals.is_raised() and process.returncode == signals.INTERRUPTED:
            signals.mark_told()  # the job itself has said so on standard error

    out = subprocess.PIPE if listener else None
    with (
        processes.starting(argv, end, env=variables, stdin=subprocess.DEVNULL, stdout=out) as process,
        deadline(job, lambda: stop(process, grace=job.grace)),
    ):
        for line in process.stdout or ():
            if listener:
                listener(line.rstrip("\n"))
        return processes.shell_code(process.wait())
