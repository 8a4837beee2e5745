"""Holds what engines share whose environments are folders of this machine, and whose jobs are its processes."""

import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from toolkit.base import files, processes
from toolkit.base.errors import PreflightError
from toolkit.engine import Environment, EnvironmentPlan, Job, Listener, custody, deadline
from train.system import signals


def prepare(plan: EnvironmentPlan, find: Callable[[], Environment | None], make: Callable[[], object]) -> Environment:
    """Return the environment that ``find`` finds, or make it while no other command makes or uses it.

    A plan with ``force`` is always made again.
    """
    custody.open_state(plan.folder.parent)
    with using(plan.folder):  # which jobs may do at the same time
        environment = None if plan.force else find()
    if environment is None:
        with making(plan.folder):
            environment = None if plan.force else find()
            if environment is None:
                make()
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
