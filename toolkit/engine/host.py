"""Implements the host engine: virtual environments with the same locked sets as the images; jobs are not isolated."""

import os
import platform
import re
import subprocess
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolkit import __version__
from toolkit.base import digest, files, interpreters, manifest, processes, project, seals
from toolkit.base.console import Console
from toolkit.engine import (
    Commands,
    Environment,
    EnvironmentPlan,
    EnvironmentSpec,
    Job,
    Listener,
    Mount,
    Platform,
    content,
    custody,
    gpus,
    local,
    packages,
)
from toolkit.engine.custody import Custody
from toolkit.engine.local import LocalEngine
from toolkit.engine.user import chown_job_files
from toolkit.engine.uv import Downloads, Uv
from train.system.progress import Work

NEEDED_BYTES: Final = {"cpu": 3 << 30, "cuda": 8 << 30}
"""Free disk for an environment: 2 and 7 GB of files, which uv's cache has too and shares with it, and a reserve."""

CLOCK_SECONDS: Final = 1
"""How far the time of a file may lie before that of the program that wrote it."""

MISLEADING: Final = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX")
"""Variables of the caller by which an interpreter would read other code than that of its environment."""

LOCKED = "requirements.txt"
IMPORTED: Final = ("tensorflow, keras", "sklearn.datasets, matplotlib.pyplot")
"""What a job imports: the modules that take long without their bytecode. Each part is imported by its own process.

The second one compiles SciPy and pandas, which Keras needs at its end, while the first one compiles TensorFlow.
"""


class HostEngine(LocalEngine):
    name = "host"

    def __init__(self, state: Path, ca_bundle: str = "", downloads: Path | None = None) -> None:
        """``ca_bundle``: PEM file. ``downloads``: folder of Python packages that are taken in place of an index."""
        super().__init__(state)
        self._uv = Uv(ca_bundle=ca_bundle, packages=downloads)

    def find_platform(self, *, fetch: bool) -> Platform:  # noqa: ARG002 - there is nothing to fetch
        """Return the C library of this machine. The Python stays empty: the spec chooses it."""
        return Platform(glibc=platform.libc_ver()[1])

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        inputs = spec.inputs
        content = digest.digest_value(
            {
                "toolkit": __version__,
                "python": spec.python,
                "requirements": inputs["requirements"],
                "wheel": inputs.get("wheel"),
            }
        )
        folder = self._state / f"environment-{spec.requirements}-{digest.shorten(content)}"
        return EnvironmentPlan(
            spec=spec,
            kind="environment",
            reference=project.shorten(folder),
            digest=content,
            folder=folder,
            inputs=inputs,
            commands=(*(self._uv.shown(*step) for step in _list_steps(spec, folder)), *_warm(folder)),
        )

    def _read(self, plan: EnvironmentPlan) -> Environment | None:
        made = manifest.read(plan.folder) is not None and interpreter(plan.folder).exists()
        return local.describe(plan, reused=True) if made else None

    @classmethod
    def examine(cls, folder: Path, identity: str) -> Custody:
        record = manifest.read(folder)
        promised = record.facts.get("files") if record else None
        return custody.inspect(
            folder,
            identity,
            lambda: content.scan(folder).fingerprint(),
            lambda: content.find_change(folder, promised),
        )

    def _make(self, plan: EnvironmentPlan, console: Console) -> None:
        _make(plan, self._uv, console)

    def commands(self, reference: str, job: Job) -> Commands:
        arguments = [str(part.source) if isinstance(part, Mount) else part for part in job.argv]
        folder = Path(reference)
        unset = [word for name in MISLEADING for word in ("-u", name)]
        variables = {
            **find_cuda(folder.resolve()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(project.ROOT),
            **job.variables,
            **gpus.name(job),
        }
        named = [f"{name}={value}" for name, value in variables.items()]
        return (("env", *unset, *named, str(interpreter(folder)), *arguments),)

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        since = time.time() - CLOCK_SECONDS
        with local.using(environment.folder):
            try:
                return local.follow(self.commands(environment.reference, job)[0], job, listener)
            finally:
                chown_job_files(job, since)


def interpreter(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def find_cuda(folder: Path) -> dict[str, str]:
    """Return the variables by which TensorFlow finds an environment's ptxas and libraries; images have links."""
    packages = next(iter(folder.glob("venv/lib/python3.*/site-packages/nvidia")), None)
    if packages is None:
        return {}
    # The RUNPATH of TensorFlow lacks some of these folders, such as that of cuSOLVER in 2.21.
    libraries = [*map(str, sorted(packages.glob("*/lib"))), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    compilers = [f"--xla_gpu_cuda_data_dir={path.parents[1]}" for path in packages.glob("*/bin/ptxas")]
    flags = [*filter(None, [os.environ.get("XLA_FLAGS")]), *compilers]
    return {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "XLA_FLAGS": " ".join(flags)}


def omit_tensorflow(locked: str) -> str:
    entries = re.split(r"(?m)^(?=\S)", locked)
    return "".join(entry for entry in entries if not re.match(r"tensorflow(-cpu)?==", entry))


def _list_steps(spec: EnvironmentSpec, folder: Path) -> tuple[tuple[str, ...], ...]:
    """Return what uv is asked to do, one tuple of arguments for each call.

    uv links files out of its cache where it can, which saves the time and the disk of a copy. Each link that is made or
    removed elsewhere changes the time of the file, so that the next command compares the environment with its list.
    """
    locked = _find_locked(spec, folder)
    install = ("pip", "install", "--python", str(interpreter(folder)), "--no-deps")
    wheel = ((*install, "--no-index", str(spec.wheel)),) if spec.wheel else ()
    return (
        ("venv", "--no-project", "--relocatable", "--python", _find_python(spec.python), str(folder / "venv")),
        (*install, "--only-binary", ":all:", "--require-hashes", "-r", str(locked)),
        *wheel,
    )


def _find_locked(spec: EnvironmentSpec, folder: Path) -> Path:
    return folder / LOCKED if spec.wheel else spec.locked


def _warm(folder: Path) -> Commands:
    """Return the commands that compile what a job imports. All else is compiled when somebody needs it."""
    unset = [word for name in (*MISLEADING, "PYTHONDONTWRITEBYTECODE") for word in ("-u", name)]
    python = ("env", *unset, "TF_CPP_MIN_LOG_LEVEL=3", str(interpreter(folder)), "-I", "-c")
    return tuple((*python, f"import {names}") for names in IMPORTED)


def _make(plan: EnvironmentPlan, uv: Uv, console: Console) -> None:
    spec, folder = plan.spec, plan.folder
    local.require_space(folder.parent, NEEDED_BYTES["cuda" if spec.cuda else "cpu"])
    seals.make_key()  # before minutes are spent
    custody.clear(folder)
    folder.mkdir(mode=0o755)
    if spec.wheel:
        files.write_atomically(folder / LOCKED, omit_tensorflow(spec.locked.read_text()))
    wheel = _install(plan, uv, console)
    listed, fingerprint = content.write(folder)
    packages.require_unchanged(folder, (content.read(folder, listed) or {"files": {}})["files"])
    record = manifest.Manifest(
        kind="environment",
        digest=plan.digest,
        parent=wheel,
        facts={"python": spec.python, "requirements": spec.requirements, "engine": "host", "files": listed},
    )
    manifest.write(folder, record)
    custody.seal(folder, fingerprint)


def _install(plan: EnvironmentPlan, uv: Uv, console: Console) -> dict[str, Any]:
    """Make the environment and fill it. Return what the record says of the wheel of its TensorFlow."""
    spec, folder = plan.spec, plan.folder
    with console.follow("install") as status:
        for step in _list_steps(spec, folder):
            uv.run_locked(*step, show=Downloads(status).show)
        recorded = packages.write(uv, folder, _find_locked(spec, folder), spec.wheel)
        status.show(Work("compiling what a job imports"))
        # What fails to be imported here fails in the smoke checks too, which say why.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with ExitStack() as running:
            for command in _warm(folder):
                end = partial(processes.stop, grace=2)
                process = running.enter_context(processes.starting(command, end, cwd="/", **quiet))
                running.callback(process.wait)
    if spec.wheel:
        return {"kind": "wheel", "name": spec.wheel.name, "digest": plan.inputs["wheel"]}
    published = next(item for name, item in recorded.items() if name in manifest.PUBLISHED)
    lock = {"kind": "lock", "name": spec.locked.name, "digest": plan.inputs["requirements"]}
    return {"kind": "wheel", "name": published.file, "digest": published.digest, "parent": lock}


def _find_python(version: str) -> str:
    """Return the path of a Python of this machine, or its version, which uv then downloads."""
    return str(interpreters.search(version) or version)
