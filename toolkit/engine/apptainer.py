"""Implements the engine for hosts without Docker: Apptainer runs the training image, from an archive of `docker save`.

https://apptainer.org/docs/user/main/docker_and_oci.html lists how its containers differ from Docker's by default.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolkit.base import digest, files, manifest, naming, processes, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, EngineError, PreflightError, ToolkitError, UsageError
from toolkit.base.steps import quote_fields
from toolkit.engine import (
    Commands,
    Environment,
    EnvironmentPlan,
    EnvironmentSpec,
    Job,
    Listener,
    Mount,
    Platform,
    custody,
    docker_archive,
    gpus,
    local,
)
from toolkit.engine.container import make_folders, name_mounts
from toolkit.engine.custody import Custody
from toolkit.engine.local import LocalEngine
from train.system.progress import Work

SIF: Final = "image.sif"
"""Name of the image in its folder, which the record of a run keeps."""

REFUSED: Final = 255
"""Exit code of apptainer itself when it cannot start a job."""

_COPIES: Final = 3
"""Space for an image by the size of its archive: the unpacked layers, their files, and the image."""


def find_version() -> str:
    """Return what the program says of its version. Raises EngineError if there is none, or users cannot run images."""
    try:
        answer = subprocess.run(["apptainer", "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        other = shutil.which("singularity")
        raise EngineError(
            "there is no apptainer on this machine",
            why=f"{other} is another program, with which this was never tried" if other else "PATH has no such program",
            remedy="load its module or install it, or use --engine host",
        ) from error
    if answer.returncode:
        raise EngineError(
            "apptainer does not run for you",
            why=_strip_colors(answer.stderr).strip(),
            remedy="a user must be known to /etc/passwd or the directory of users; or use --engine host",
        )
    if os.getuid() and not _has_namespaces() and not _has_setuid():
        raise EngineError(
            "apptainer cannot run images for you",
            why="this machine gives users no namespaces of their own, and apptainer has no setuid part here",
            remedy="ask an administrator for user namespaces or the package apptainer-suid, or use --engine host",
        )
    return answer.stdout.strip().removeprefix("apptainer version ")


def _has_namespaces() -> bool:
    return not subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False).returncode


def _has_setuid() -> bool:
    output = subprocess.run(["apptainer", "buildcfg", "LIBEXECDIR"], capture_output=True, text=True, check=False).stdout
    return Path(output.strip(), "apptainer", "bin", "starter-suid").is_file()


class ApptainerEngine(LocalEngine):
    """Runs jobs by Apptainer, which only `prepare` asks for: another machine may print the plan."""

    name = "apptainer"

    def __init__(self, state: Path, archive: str) -> None:
        super().__init__(state)
        self._archive = Path(archive)

    def find_platform(self, *, fetch: bool) -> Platform:  # noqa: ARG002 - the archive is here, and has its own wheel
        return Platform()

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        """Plan the image. Raises UsageError if there is no archive of these versions, or if a wheel is given."""
        if spec.wheel or not self._archive.name:
            raise UsageError(
                "--wheel is for engines that build"
                if spec.wheel
                else "--engine apptainer needs the archive of an image",
                why="apptainer runs an image that another machine has built, with the TensorFlow in it",
                remedy="where Docker is: `toolkit build-image`, `docker save --output FILE NAME`; here: --archive FILE",
            )
        archive = docker_archive.read(self._archive)
        docker_archive.require_same(archive, spec, self._archive)
        folder = self._state / f"image-apptainer-{digest.shorten(archive.identity)}"
        build = (
            "apptainer",
            "build",
            "--disable-cache",
            str(folder / SIF),
            f"docker-archive:{self._archive.resolve()}",
        )
        instructions = tuple(archive.labels.get(naming.INSTRUCTIONS_LABEL, "").split())
        return EnvironmentPlan(
            spec=replace(spec, instructions=instructions),
            kind="image",
            reference=project.shorten(folder / SIF),
            digest=archive.identity,
            folder=folder,
            inputs={"image": archive.identity},
            commands=(("mkdir", "--parents", str(folder)), build),
            origin=f"of {archive.name} in {self._archive}",
        )

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Make the image, as every engine of this kind does. Raises EngineError if apptainer does not run here."""
        find_version()  # before anything is written
        return super().prepare(plan, console)

    def commands(self, reference: str, job: Job) -> Commands:
        return (*make_folders(job.mounts), describe(reference, job))

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        # Their values may be secrets, which no argument may hold.
        secrets = {f"APPTAINERENV_{name}": os.environ[name] for name in job.inherit if name in os.environ}
        argv = self.commands(environment.reference, job)[-1]
        with local.using(environment.folder):
            code = local.follow(argv, job, listener, variables={**os.environ, **secrets}, stop=_stop)
        if code == REFUSED:
            raise EngineError(
                f"apptainer could not run {job.title}",
                why="it has said why",
                remedy="`toolkit doctor` checks apptainer; --engine host needs no container",
            )
        return code

    def _read(self, plan: EnvironmentPlan) -> Environment | None:
        return find(plan.folder)

    def _examine(self, plan: EnvironmentPlan) -> Custody:
        return examine(plan.folder, plan.digest)

    def _make(self, plan: EnvironmentPlan, console: Console) -> None:
        archive, log = docker_archive.read(self._archive), plan.folder / "build.log"
        local.require_space(self._state, _COPIES * self._archive.stat().st_size)
        docker_archive.verify(self._archive, archive)
        seals.make_key()  # before minutes are spent
        custody.clear(plan.folder)
        plan.folder.mkdir(mode=0o755)
        # Everything is written there, because /tmp is often small, and removed even if this program is killed.
        with files.stage(self._state, digest.shorten(plan.digest)) as staging:
            made, argv = staging.path / SIF, plan.commands[-1]
            with console.follow("image") as status:
                status.show(Work("apptainer unpacks and packs it, which takes minutes"))
                code = _build((*argv[:-2], str(made), argv[-1]), staging, log)
            if code:
                raise _explain(log, code)
            facts = _describe(archive, made, find_version())
            made.replace(plan.folder / SIF)
            fingerprint = _read_fingerprint(plan.folder)
        wheel, lock = archive.labels.get(naming.WHEEL_LABEL), archive.labels.get(naming.LOCK_LABEL)
        parent = {"kind": "wheel" if wheel else "lock", "name": f"a label of {archive.name}", "digest": wheel or lock}
        manifest.write(plan.folder, manifest.Manifest(kind="image", digest=plan.digest, parent=parent, facts=facts))
        custody.seal(plan.folder, fingerprint)


def examine(folder: Path, identity: str) -> Custody:
    """Return whether an image may be used. ``identity``: the digest that its manifest must have."""
    record = manifest.read(folder)

    def compare() -> tuple[str, str]:
        before = _read_fingerprint(folder)
        try:
            same = before and digest.read_file(folder / SIF) == (record.facts.get("file") if record else None)
        except OSError as error:
            return f"{SIF} cannot be read: {error.strerror}", ""
        return "" if same else f"{SIF} has other bytes than its record", before

    return custody.inspect(folder, identity, partial(_read_fingerprint, folder), compare)


def _read_fingerprint(folder: Path) -> str:
    try:
        status = (folder / SIF).lstat()
    except OSError:
        return ""
    kind = "" if stat.S_ISREG(status.st_mode) else "no file "
    return f"{kind}{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_mode}"


def find(folder: Path) -> Environment | None:
    """Return the image in a folder, if it was made completely."""
    record = manifest.read(folder)
    if record is None or record.kind != "image" or not (folder / SIF).is_file():
        return None
    return Environment(
        kind="image",
        digest=record.digest,
        reference=project.shorten(folder / SIF),
        folder=folder,
        reused=True,
        instructions=tuple(record.facts.get("labels", {}).get(naming.INSTRUCTIONS_LABEL, "").split()),
    )


def describe(reference: str, job: Job) -> tuple[str, ...]:
    """Return the command of a job that gets no more than a container of Docker: no files, variables or network.

    What of these it needs is named. Without ``--no-eval``, apptainer would evaluate values as a shell does.
    """
    argv = ["apptainer", "--quiet", "exec", "--containall", "--no-home", "--no-eval", "--pwd", "/"]
    argv += [] if job.network or job.own_network else ["--net", "--network", "none"]
    argv += ["--nv"] if job.gpu else []
    for mount in job.mounts:
        fields = (f"source={mount.source.resolve()}", f"destination={mount.target}", *["ro"] * (not mount.writable))
        argv += ["--mount", quote_fields("type=bind", *fields)]
    # Apptainer lets no one choose HOME, and the home that it names does not exist in the image.
    variables = {"HOME": "/tmp", **job.variables, **name_mounts(job)}  # noqa: S108 - a tmpfs of the container
    variables |= gpus.name(job)
    arguments = (part.target if isinstance(part, Mount) else part for part in job.argv)
    return (*argv, reference, "env", *(f"{name}={value}" for name, value in variables.items()), "python", *arguments)


def _stop(process: subprocess.Popen[str], *, grace: float) -> None:
    """Ask a job to stop, and kill it after ``grace`` seconds.

    Only apptainer gets the signal: it hands it on, and the job takes a second one for impatience. It is not killed
    itself, because its file system, a process of its own, would stay.
    """
    process.terminate()
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        for children in Path(f"/proc/{process.pid}/task").glob("*/children"):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        processes.stop(process, grace=10)


def _build(argv: tuple[str, ...], staging: files.Staging, log: Path) -> int:
    variables = {**os.environ, "APPTAINER_TMPDIR": str(staging.path), "APPTAINER_CACHEDIR": str(staging.path)}
    with (
        log.open("w") as stream,
        processes.starting(
            argv,
            partial(processes.stop, grace=10),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            pass_fds=[staging.lock],
        ) as process,
    ):
        return process.wait()


def _describe(archive: docker_archive.Archive, made: Path, version: str) -> dict[str, Any]:
    return {
        "tag": archive.name,
        "plan": archive.labels.get(naming.PLAN_LABEL),
        "labels": dict(archive.labels),
        "bytes": made.stat().st_size,
        "file": digest.read_file(made),
        "apptainer": version,
        "engine": ApptainerEngine.name,
    }


def _explain(log: Path, code: int) -> ToolkitError:
    lines = _strip_colors(log.read_text(errors="replace")).splitlines()
    message = "\n       ".join(line for line in lines if line.startswith("FATAL")) or "\n       ".join(lines[-5:])
    if any(processes.DISK_FULL.search(line) for line in lines):
        return PreflightError(
            "the disk filled up while apptainer made the image",
            why=message,
            remedy="free space, or set TOOLKIT_STATE to a larger disk",
        )
    return BuildError(f"apptainer build failed with exit code {code}", why=message, remedy=f"the whole log is {log}")


def _strip_colors(text: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", text)
