"""Holds what engines share that run an image as one file, which they make from an archive of `docker save`."""

import os
import re
import stat
import subprocess
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from toolkit.base import digest, files, manifest, naming, processes, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, PreflightError, ToolkitError, UsageError
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

_COPIES: Final = 3
"""Space for an image by the size of its archive: the unpacked layers, their files, and the image."""


class PackedEngine(LocalEngine):
    """Runs jobs by a program that only `prepare` asks for: another machine may print the plan."""

    name: str  # of the engine and of its program
    file: str  # name of the image in its folder, whose record has the digest of its bytes as ``file``
    fatal: str  # how a line of the build's output begins that says why it failed
    folders: tuple[str, ...]  # variables that tell the build where to write its own files
    prefix: str = ""  # what the name of a variable begins with that a job gets without being named in a command

    def __init__(self, state: Path, archive: str) -> None:
        """``archive``: path of a file of `docker save`; empty if only images that are there are run."""
        super().__init__(state)
        self._archive = Path(archive)

    @staticmethod
    @abstractmethod
    def find_version() -> str:
        """Return the version of the program. Raises EngineError if it does not run images for this user."""

    @abstractmethod
    def pack(self, archive: Path, image: Path) -> tuple[str, ...]:
        """Return the command that makes an image from an archive."""

    @abstractmethod
    def enter(self, reference: str, job: Job) -> tuple[str, ...]:
        """Return the start of a job's command, up to where a command inside the image follows.

        A job gets no more than a container of Docker: no files, variables or network but those that it names.
        """

    @staticmethod
    def stop(process: subprocess.Popen[str], *, grace: float) -> None:
        """Ask a job to stop, and kill it after ``grace`` seconds."""
        processes.stop(process, grace=grace)

    def find_platform(self, *, fetch: bool) -> Platform:  # noqa: ARG002 - the archive is here, and has its own wheel
        return Platform()

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        """Plan the image. Raises UsageError if there is no archive of these versions, or if a wheel is given."""
        if spec.wheel or not self._archive.name:
            raise UsageError(
                "--wheel is for engines that build"
                if spec.wheel
                else f"--engine {self.name} needs the archive of an image",
                why=f"{self.name} runs an image that another machine has built, with the TensorFlow in it",
                remedy="where Docker is: `toolkit build-image`, `docker save --output FILE NAME`; here: --archive FILE",
            )
        archive = docker_archive.read(self._archive)
        docker_archive.require_same(archive, spec, self._archive)
        folder = self._state / f"image-{self.name}-{digest.shorten(archive.identity)}"
        instructions = tuple(archive.labels.get(naming.INSTRUCTIONS_LABEL, "").split())
        return EnvironmentPlan(
            spec=replace(spec, instructions=instructions),
            kind="image",
            reference=project.shorten(folder / self.file),
            digest=archive.identity,
            folder=folder,
            inputs={"image": archive.identity},
            commands=(("mkdir", "--parents", str(folder)), self.pack(self._archive.resolve(), folder / self.file)),
            origin=f"of {archive.name} in {self._archive}",
        )

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Make the image, as every local engine does. Raises EngineError if the program does not run here."""
        self.find_version()  # before anything is written
        return super().prepare(plan, console)

    def commands(self, reference: str, job: Job) -> Commands:
        # The user's home does not exist in the image.
        variables = {"HOME": "/tmp", **job.variables, **name_mounts(job)}  # noqa: S108 - a tmpfs of the container
        named = (f"{name}={value}" for name, value in (variables | gpus.name(job)).items())
        arguments = (part.target if isinstance(part, Mount) else part for part in job.argv)
        return (*make_folders(job.mounts), (*self.enter(reference, job), "env", *named, "python", *arguments))

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        # Their values may be secrets, which no argument may hold.
        secrets = {f"{self.prefix}{name}": os.environ[name] for name in job.inherit if name in os.environ}
        argv = self.commands(environment.reference, job)[-1]
        with local.using(environment.folder):
            return local.follow(argv, job, listener, variables={**os.environ, **secrets}, stop=self.stop)

    @classmethod
    def find_made(cls, folder: Path) -> Environment | None:
        """Return the image in a folder, if it was made completely."""
        record = manifest.read(folder)
        if record is None or record.kind != "image" or not (folder / cls.file).is_file():
            return None
        return Environment(
            kind="image",
            digest=record.digest,
            reference=project.shorten(folder / cls.file),
            folder=folder,
            reused=True,
            instructions=tuple(record.facts.get("labels", {}).get(naming.INSTRUCTIONS_LABEL, "").split()),
        )

    @classmethod
    def examine(cls, folder: Path, identity: str) -> Custody:
        record, image = manifest.read(folder), folder / cls.file

        def compare() -> tuple[str, str]:
            before = _read_fingerprint(image)
            try:
                same = before and digest.read_file(image) == (record.facts.get("file") if record else None)
            except OSError as error:
                return f"{image.name} cannot be read: {error.strerror}", ""
            return "" if same else f"{image.name} has other bytes than its record", before

        return custody.inspect(folder, identity, partial(_read_fingerprint, image), compare)

    def _read(self, plan: EnvironmentPlan) -> Environment | None:
        return self.find_made(plan.folder)

    def _make(self, plan: EnvironmentPlan, console: Console) -> None:
        archive, log, image = docker_archive.read(self._archive), plan.folder / "build.log", plan.folder / self.file
        local.require_space(self._state, _COPIES * self._archive.stat().st_size)
        docker_archive.verify(self._archive, archive)
        seals.make_key()  # before minutes are spent
        custody.clear(plan.folder)
        plan.folder.mkdir(mode=0o755)
        # Everything is written there, because /tmp is often small, and removed even if this program is killed.
        with files.stage(self._state, digest.shorten(plan.digest)) as staging:
            made = staging.path / self.file
            with (
                console.follow("image") as status,
                log.open("w") as stream,
                processes.starting(
                    self.pack(self._archive.resolve(), made),
                    partial(processes.stop, grace=10),
                    env={**os.environ, **dict.fromkeys(self.folders, str(staging.path))},
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    pass_fds=[staging.lock],
                ) as process,
            ):
                status.show(Work(f"{self.name} unpacks and packs it, which takes minutes"))
                code = process.wait()
            if code:
                raise self._explain(log, code)
            facts = {
                "tag": archive.name,
                "plan": archive.labels.get(naming.PLAN_LABEL),
                "labels": dict(archive.labels),
                "bytes": made.stat().st_size,
                "file": digest.read_file(made),
                self.name: self.find_version(),
                "engine": self.name,
            }
            made.replace(image)
            fingerprint = _read_fingerprint(image)
        wheel, lock = archive.labels.get(naming.WHEEL_LABEL), archive.labels.get(naming.LOCK_LABEL)
        parent = {"kind": "wheel" if wheel else "lock", "name": f"a label of {archive.name}", "digest": wheel or lock}
        manifest.write(plan.folder, manifest.Manifest(kind="image", digest=plan.digest, parent=parent, facts=facts))
        custody.seal(plan.folder, fingerprint)

    def _explain(self, log: Path, code: int) -> ToolkitError:
        lines = strip_colors(log.read_text(errors="replace")).splitlines()
        message = "\n       ".join([line for line in lines if line.startswith(self.fatal)] or lines[-5:])
        if any(processes.DISK_FULL.search(line) for line in lines):
            return PreflightError(
                f"the disk filled up while {self.name} made the image",
                why=message,
                remedy="free space, or set TOOLKIT_STATE to a larger disk",
            )
        return BuildError(
            f"{self.name} build failed with exit code {code}", why=message, remedy=f"the whole log is {log}"
        )


def strip_colors(text: str) -> str:
    return re.sub(r"\x1b\[\d*m", "", text)


def _read_fingerprint(image: Path) -> str:
    try:
        status = image.lstat()
    except OSError:
        return ""
    kind = "" if stat.S_ISREG(status.st_mode) else "no file "
    return f"{kind}{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino} {status.st_mode}"
