"""A virtual environment, installed from the same locked set as the image; complete or absent, never half."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit import __version__, digest, files, manifest, processes, project
from toolkit.console import Console
from toolkit.errors import BuildError, IntegrityError, PreflightError, ToolkitError
from toolkit.progress import StatusLine
from toolkit.recipe import Recipe

NEEDED_BYTES: Final = {"cpu": 4 << 30, "cuda": 16 << 30}
"""Free disk that an installation needs, wheels and unpacked files together, with some air."""

LOCKED = "requirements.txt"
LOG = "install.log"
REPORT = "pip-report.json"


@dataclass(frozen=True, kw_only=True)
class VenvPlan:
    """How an environment is made.

    Attributes:
        folder: where it lies, with its log and manifest.
        digest: content digest of all that goes in.
        commands: what is run, in order.
    """

    folder: Path
    digest: str
    commands: tuple[tuple[str, ...], ...]


def plan(recipe: Recipe, state: Path) -> VenvPlan:
    """Plan an environment below ``state``; nothing is started.

    Raises:
        PreflightError: this machine lacks the Python asked for.
    """
    content = digest.digest_value(
        {
            "toolkit": __version__,
            "python": recipe.python,
            "requirements": digest.digest_file(_locked(recipe)),
            "wheel": digest.digest_file(recipe.wheel) if recipe.wheel else None,
        }
    )
    folder = state / f"environment-{recipe.variant}-{digest.shorten(content)}"
    locked = folder / LOCKED if recipe.wheel else _locked(recipe)
    pip = (str(interpreter(folder)), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-deps")
    commands: list[tuple[str, ...]] = [
        (_find_python(recipe.python), "-m", "venv", str(folder / "venv")),
        (*pip, "--require-hashes", "--report", str(folder / REPORT), "-r", str(locked)),
    ]
    if recipe.wheel:
        commands.append((*pip, "--no-index", str(recipe.wheel)))
    return VenvPlan(folder=folder, digest=content, commands=tuple(commands))


def make(planned: VenvPlan, recipe: Recipe, console: Console, *, ca_bundle: str = "") -> bool:
    """Make an environment unless it is there; returns whether it was. Complete is what has a manifest: it is last.

    Raises:
        BuildError: pip failed.
        IntegrityError: a package's bytes are not those of the lock.
        PreflightError: too little disk.
    """
    folder = planned.folder
    files.require_writable(folder.parent)
    with making(folder):
        if manifest.read(folder) is not None and interpreter(folder).exists():
            return True
        _require_space(folder.parent, NEEDED_BYTES["cuda" if recipe.cuda else "cpu"])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if recipe.wheel:
            files.write_atomically(folder / LOCKED, omit_tensorflow(_locked(recipe).read_text()))
        _install(planned, recipe, console, ca_bundle)
        manifest.write(
            folder,
            manifest.Manifest(
                kind="environment",
                digest=planned.digest,
                parent=manifest.describe_wheel(recipe, folder / REPORT),
                facts={"python": recipe.python, "requirements": recipe.requirements, "engine": "host"},
            ),
        )
    return False


def _install(planned: VenvPlan, recipe: Recipe, console: Console, ca_bundle: str) -> None:
    log = planned.folder / LOG
    total = _locked(recipe).read_text().count("==")
    status = StatusLine(console, "install")
    environment = {**os.environ, **({"PIP_CERT": ca_bundle} if ca_bundle else {})}
    for command in planned.commands:
        code = _follow(command, log, status, total, environment)
        if code:
            status.clear()
            raise _explain(log, command, code)
    status.clear()


def _follow(command: tuple[str, ...], log: Path, status: StatusLine, total: int, environment: dict[str, str]) -> int:
    """Run one command; its output goes to the log, what pip is at to the status line."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
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


def interpreter(folder: Path) -> Path:
    """The Python of an environment."""
    return folder / "venv" / "bin" / "python"


def find_cuda(folder: Path) -> dict[str, str]:
    """Where the CUDA wheels of an environment put what TensorFlow looks for elsewhere; the image has links instead.

    XLA takes the first ptxas on PATH, which may be of another CUDA; the profiler's library is not searched for at all.
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
def _lock(folder: Path, how: int) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("w") as stream:
        fcntl.flock(stream, how)
        yield


def making(folder: Path) -> AbstractContextManager[None]:
    """Two commands at once make the environment once: the second waits and reuses it."""
    return _lock(folder, fcntl.LOCK_EX)


def using(folder: Path) -> AbstractContextManager[None]:
    """An environment in which a job runs is neither made again nor cleaned away."""
    return _lock(folder, fcntl.LOCK_SH)
