"""Runs pip for any environment. pip itself is that of this program, or else that of the environment."""

import importlib.metadata
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from toolkit import diagnosis, interpreters, processes
from toolkit.errors import BuildError, PreflightError, ToolkitError
from toolkit.versions import numbers
from train.system.addresses import hide

_OLDEST: Final = "22.3"
"""The first pip that has --python, and reports of what it would install."""

_ELSEWHERE: Final = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_NO_DEPS", "PIP_DRY_RUN")
"""Variables by which pip would install somewhere else, or something else."""

_SHOWN_LINES: Final = 12
_INTERESTING: Final = ("Collecting ", "  Downloading ", "Processing ", "Installing ")


@dataclass(frozen=True, kw_only=True)
class Pip:
    command: tuple[str, ...]  # that runs pip
    variables: Mapping[str, str] = field(default_factory=dict)  # besides those of the caller: where packages come from

    def install(
        self,
        python: Path,
        *arguments: str,
        show: Callable[[str], object] = lambda _line: None,
        locks: Sequence[int] = (),
    ) -> None:
        """Run ``pip install`` for the environment of a Python. Only wheels are taken, so no code of a package runs.

        ``show`` gets lines that say how far pip is. ``locks``: descriptors of locks that pip inherits. Raises
        BuildError if pip failed, IntegrityError if a package has another hash, and PreflightError if the disk is full.
        """
        self._run(python, ["install", "--no-input", "--no-user", "--only-binary=:all:", *arguments], show, locks)

    def uninstall(self, python: Path, names: Sequence[str], *, locks: Sequence[int] = ()) -> None:
        self._run(python, ["uninstall", "--yes", *names], lambda _line: None, locks)

    def _run(self, python: Path, arguments: Sequence[str], show: Callable[[str], object], locks: Sequence[int]) -> None:
        argv = [*self.command, "--python", str(python), "--disable-pip-version-check", *arguments]
        left_out = {*interpreters.FOREIGN, *_ELSEWHERE}
        variables = {name: value for name, value in os.environ.items() if name not in left_out}
        lines: list[str] = []
        with processes.starting(
            argv,
            partial(processes.stop, grace=10),
            env={**variables, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=locks,
        ) as process:
            for line in process.stdout or ():
                lines.append(hide(line.rstrip("\n")))
                if line.startswith(_INTERESTING):
                    show(line.strip())
            code = process.wait()
        if code:
            raise _explain(lines, code)


def find(python: Path, *, ca_bundle: str = "", packages: Path | None = None) -> Pip:
    """Return the pip of this program, or that of an environment, given by its Python.

    ``packages``: folder of packages that are taken in place of an index. Raises PreflightError if neither has a
    pip that is new enough.
    """
    variables = {"PIP_CERT": ca_bundle} if ca_bundle else {}
    if packages:
        variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages.resolve())}
    for program, ask in ((Path(sys.executable), _find_own_version), (python, partial(_ask_version, python))):
        if (version := ask()) and numbers.parse(version) >= numbers.parse(_OLDEST):
            # Otherwise a module of that name in the current folder would run.
            return Pip(command=(str(program), "-I", "-m", "pip"), variables=variables)
    raise PreflightError(
        f"there is no pip {_OLDEST} or newer",
        why=f"neither {sys.executable} nor {python} has one",
        remedy=f"give one of them a pip: {sys.executable} -m ensurepip --upgrade",
    )


def _find_own_version() -> str:
    try:
        return _keep_release(importlib.metadata.version("pip"))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _ask_version(python: Path) -> str:
    try:
        done = subprocess.run(
            [str(python), "-I", "-m", "pip", "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _keep_release(done.stdout.removeprefix("pip ")) if done.returncode == 0 else ""


def _keep_release(version: str) -> str:
    """Return the numbers of a version alone, such as 23.2 for 23.2.dev1."""
    release = re.match(r"\d+(\.\d+)+", version)
    return release[0] if release else ""


def _explain(lines: Sequence[str], code: int) -> ToolkitError:
    last = lines[-_SHOWN_LINES:]
    if any(processes.DISK_FULL.search(line) for line in last):
        return PreflightError(
            "the disk filled up while packages were installed",
            why="the environment is as it was before",
            remedy="free space there, in the folder of temporary files (TMPDIR), and in the cache of pip",
        )
    if any(processes.OTHER_BYTES.search(line) for line in lines):
        wrong = next(line.strip() for line in lines if processes.OTHER_BYTES.search(line))
        return processes.describe_wrong_package(f"pip says: {wrong}")
    errors = [line for line in lines if line.startswith("ERROR:")] or last
    cause = diagnosis.name_cause("\n".join(lines))
    return BuildError(
        f"pip failed with exit code {code}; the environment is as it was before",
        why="pip says:\n    " + "\n    ".join(errors[-_SHOWN_LINES:]),
        remedy="look at what it names; without a network, give the folder of `toolkit collect` with --downloads, and "
        f"behind a proxy that re-signs https, --ca-bundle\n{cause}".strip(),
    )
