"""The host as an engine: a virtual environment, installed from the same locked set as the image.

For machines without a container engine. The isolation of a container is not to be had here, and is not claimed.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolkit import __version__, digest, files, manifest, processes, project
from toolkit.console import Console
from toolkit.engine.deadline import Deadline
from toolkit.engine.job import Job, Listener, Mount
from toolkit.engine.protocol import Environment, EnvironmentPlan
from toolkit.errors import BuildError, IntegrityError, PreflightError, ToolkitError
from toolkit.progress import StatusLine
from toolkit.recipe import Recipe

NEEDED_BYTES: Final = {"cpu": 4 << 30, "cuda": 16 << 30}
"""Free disk that an installation needs, wheels and unpacked files together, with some air."""


LOCKED = "requirements.txt"
REPORT = "pip-report.json"


class HostEngine:
    """Runs jobs with an interpreter of this machine."""

    name = "host"

    def __init__(self, state: Path, ca_bundle: str = "") -> None:
        self._state = state.resolve()
        self._ca_bundle = ca_bundle

    def has_gpu(self) -> bool:
        """See :class:`toolkit.engine.protocol.Engine`."""
        return Path("/dev/nvidia0").exists()

    def plan(self, recipe: Recipe) -> EnvironmentPlan:
        """See :class:`toolkit.engine.protocol.Engine`."""
        folder = self._folder(recipe)
        create = (_find_python(recipe.python), "-m", "venv", str(folder / "venv"))
        return EnvironmentPlan(reference=project.shorten(folder), commands=(create, *self._installs(recipe, folder)))

    def prepare(self, recipe: Recipe, console: Console) -> Environment:
        """See :class:`toolkit.engine.protocol.Engine`. Complete is what has a manifest: it is written last."""
        folder = self._folder(recipe)
        files.require_writable(self._state)
        with _lock(folder.with_suffix(".lock")):
            reused = manifest.read(folder) is not None and _interpreter(folder).exists()
            if not reused:
                _require_space(self._state, NEEDED_BYTES["cuda" if recipe.cuda else "cpu"])
                self._install(recipe, folder, console)
        return Environment(
            kind="environment",
            digest=self._digest(recipe),
            reference=project.shorten(folder),
            folder=folder,
            reused=reused,
        )

    def command(self, environment: str, job: Job) -> list[str]:
        """See :class:`toolkit.engine.protocol.Engine`."""
        arguments = [str(part.source) if isinstance(part, Mount) else part for part in job.argv]
        return [str(_interpreter(Path(environment))), *arguments]

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """See :class:`toolkit.engine.protocol.Engine`."""
        process = subprocess.Popen(
            self.command(environment.reference, job),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if listener else None,
            text=True,
            env={
                **os.environ,
                **_find_cuda(environment.folder),
                "PYTHONPATH": str(project.ROOT),
                "PYTHONDONTWRITEBYTECODE": "1",
                **job.environment,
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

    def _digest(self, recipe: Recipe) -> str:
        return digest.digest_value(
            {
                "toolkit": __version__,
                "python": recipe.python,
                "requirements": digest.digest_file(_locked(recipe)),
                "wheel": digest.digest_file(recipe.wheel) if recipe.wheel else None,
            }
        )

    def _folder(self, recipe: Recipe) -> Path:
        return self._state / f"environment-{recipe.variant}-{digest.shorten(self._digest(recipe))}"

    def _installs(self, recipe: Recipe, folder: Path) -> list[tuple[str, ...]]:
        pip = (str(_interpreter(folder)), "-m", "pip", "install", "--no-input", "--disable-pip-version-check")
        locked = folder / LOCKED if recipe.wheel else _locked(recipe)
        commands: list[tuple[str, ...]] = [
            (*pip, "--require-hashes", "--no-deps", "--report", str(folder / REPORT), "-r", str(locked))
        ]
        if recipe.wheel:
            commands.append((*pip, "--no-deps", "--no-index", str(recipe.wheel)))
        return commands

    def _install(self, recipe: Recipe, folder: Path, console: Console) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log = folder / "install.log"
        if recipe.wheel:
            files.write_atomically(folder / LOCKED, omit_tensorflow(_locked(recipe).read_text()))
        total = _locked(recipe).read_text().count("==")
        status = StatusLine(console, "install")
        for command in self.plan(recipe).commands:
            code = self._follow(command, log, status, total)
            if code:
                status.clear()
                raise _explain(log, command, code)
        status.clear()
        manifest.write(
            folder,
            manifest.Manifest(
                kind="environment",
                digest=self._digest(recipe),
                parent=manifest.describe_wheel(recipe, folder / REPORT),
                facts={"python": recipe.python, "requirements": recipe.requirements, "engine": "host"},
            ),
        )

    def _follow(self, command: tuple[str, ...], log: Path, status: StatusLine, total: int) -> int:
        """Run one command of the installation; its output goes to the log, what pip is at to the status line."""
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **({"PIP_CERT": self._ca_bundle} if self._ca_bundle else {})},
            start_new_session=True,
        )
        collected = 0
        try:
            with log.open("a") as stream:
                for line in process.stdout or ():
                    stream.write(line)
                    collected += line.startswith("Collecting ")
                    if line.startswith(("Collecting ", "  Downloading ", "Installing ")):
                        status.show(f"[{collected}/{total}] {line.strip()}")
            return process.wait()
        except BaseException:
            processes.stop(process, grace=10)
            raise


def omit_tensorflow(locked: str) -> str:
    """A locked set without TensorFlow's entry, for a wheel of our own to take its place. All else stays, hashes too."""
    entries = re.split(r"(?m)^(?=\S)", locked)
    return "".join(entry for entry in entries if not re.match(r"tensorflow(-cpu)?==", entry))


def _locked(recipe: Recipe) -> Path:
    return project.locate(f"docker/requirements/{recipe.requirements}.txt")


def _interpreter(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def _find_cuda(folder: Path) -> dict[str, str]:
    """Where the CUDA wheels of an environment put what TensorFlow looks for elsewhere; the image has links instead.

    XLA takes the first ptxas on PATH, which may be of another CUDA, and the profiler's library is not searched for at all.
    """
    found = next(iter(folder.glob("venv/lib/python3.*/site-packages/nvidia")), None)
    if found is None:
        return {}
    libraries = [str(found / "cuda_cupti" / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    flags = [*filter(None, [os.environ.get("XLA_FLAGS")]), f"--xla_gpu_cuda_data_dir={found / 'cuda_nvcc'}"]
    return {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "XLA_FLAGS": " ".join(flags)}


def _find_python(version: str) -> str:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise PreflightError(
            f"Python {version} is not on this machine",
            why=f"the locked set is for Python {version}, and this one is {sys.version.split()[0]}",
            remedy=f"install python{version}, or use --engine docker",
        )
    return found


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PreflightError(
            f"too little disk at {folder}: {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed",
            remedy="free space, run `toolkit clean`, or set TOOLKIT_STATE to a folder on a larger disk",
        )


def _explain(log: Path, command: tuple[str, ...], code: int) -> ToolkitError:
    tail = log.read_text().splitlines()[-12:]
    if any("No space left on device" in line for line in tail):
        return PreflightError(
            "the disk filled up while installing", remedy="free space, or set TOOLKIT_STATE to a larger disk"
        )
    if any("DO NOT MATCH THE HASHES" in line or "Expected sha256" in line for line in log.read_text().splitlines()):
        return IntegrityError(
            "a downloaded package does not have the hash that the lock promises",
            why=f"see {log}",
            remedy="do not install it: find out which mirror or proxy served it",
        )
    return BuildError(
        f"{' '.join(command[1:4])} failed with exit code {code}",
        why="its last lines:\n    " + "\n    ".join(tail),
        remedy=f"the whole log is {log}",
    )


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Two commands at once make the environment once: the second waits and reuses it."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
