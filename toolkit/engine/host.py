"""Implements the host engine: virtual environments with the same locked sets as the images; jobs are not isolated."""

import fcntl
import json
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from toolkit import __version__, digest, files, interpreters, manifest, processes, project, seals
from toolkit.console import Console
from toolkit.engine import (
    Cluster,
    Commands,
    Environment,
    EnvironmentPlan,
    EnvironmentSpec,
    Job,
    Listener,
    Mount,
    Platform,
    Stop,
    content,
    custody,
    deadline,
    gpus,
)
from toolkit.engine.custody import Custody
from toolkit.engine.user import chown_job_files
from toolkit.errors import BuildError, PreflightError, ToolkitError
from train.system import signals
from train.system.addresses import hide
from train.system.progress import Status, Work

NEEDED_BYTES: Final = {"cpu": 4 << 30, "cuda": 16 << 30}
"""Free disk that an installation needs for wheels and unpacked files, with some reserve."""

CLOCK_SECONDS: Final = 1
"""How far the time of a file may lie before that of the program that wrote it."""

MISLEADING: Final = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX")
"""Variables of the caller by which an interpreter would read other code than that of its environment."""

LOCKED = "requirements.txt"
LOG = "install.log"
REPORT = "pip-report.json"


class HostEngine:
    name = "host"

    def __init__(self, state: Path, ca_bundle: str = "", packages: Path | None = None) -> None:
        """``ca_bundle``: PEM file. ``packages``: folder of Python packages that are taken in place of an index."""
        self._state = state.resolve()
        self._examined: dict[Path, Custody] = {}
        self._variables = {"PIP_CERT": ca_bundle} if ca_bundle else {}
        if packages:
            self._variables |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(packages.resolve())}

    def has_gpu(self) -> bool:
        return has_gpu()

    def find_platform(self, *, fetch: bool) -> Platform:  # noqa: ARG002 - there is nothing to fetch
        """Return the C library of this machine. The Python stays empty: the spec chooses it."""
        return Platform(glibc=platform.libc_ver()[1])

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        """Plan an environment. Raises PreflightError if this machine lacks the Python asked for."""
        inputs = spec.inputs
        content = digest.digest_value(
            {
                "toolkit": __version__,
                "python": spec.python,
                "requirements": inputs["requirements"],
                "wheel": inputs.get("wheel"),
                **({"emulated": True} if spec.emulated else {}),
            }
        )
        folder = self._state / f"environment-{spec.variant}-{digest.shorten(content)}"
        return EnvironmentPlan(
            spec=spec,
            kind="environment",
            reference=project.shorten(folder),
            digest=content,
            folder=folder,
            inputs=inputs,
            commands=_list_commands(spec, folder, self._variables),
        )

    def find(self, plan: EnvironmentPlan) -> Environment | None:
        """Return the environment if this user has made it, and nothing in it has changed since.

        Raises PreflightError if others can change what the state folder holds.
        """
        seals.require_own(self._state)
        if manifest.read(plan.folder) is None or not interpreter(plan.folder).exists():
            return None
        examined = self._examined.get(plan.folder)
        if examined is None or examined.doubt:  # another command may have made it anew meanwhile
            examined = self._examined[plan.folder] = examine(plan.folder, plan.digest)
        return None if examined.doubt else _describe(plan, reused=True)

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        """Make an environment, with its manifest and seal last, so that an incomplete one is made again.

        Raises BuildError if pip failed, IntegrityError if a package is not the locked one, and PreflightError if
        there is too little disk, or if others can change what the state folder holds.
        """
        environment = prepare(plan, partial(self.find, plan), partial(self._make, plan, console))
        custody.renew(plan.folder, self._examined.get(plan.folder))
        return environment

    def _make(self, plan: EnvironmentPlan, console: Console) -> None:
        examined = self._examined.pop(plan.folder, None)
        if examined and examined.doubt:
            console.heading("venv", f"{project.shorten(plan.folder)} is made anew: {examined.doubt}")
        _make(plan, console)

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

    def plan_cluster(self, count: int, *, outside: bool) -> Cluster:  # noqa: ARG002 - jobs share the host's network
        return choose_ports(count)

    def join(self, cluster: Cluster) -> AbstractContextManager[None]:  # noqa: ARG002 - the host's network exists
        return nullcontext()

    def run(
        self,
        environment: Environment,
        job: Job,
        listener: Listener | None = None,
        started: Callable[[Stop], object] | None = None,
    ) -> int:
        since = time.time() - CLOCK_SECONDS
        with using(environment.folder):
            try:
                return follow(self.commands(environment.reference, job)[0], job, listener, started)
            finally:
                chown_job_files(job, since)


def hides_gpus() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all GPUs from the programs of this user."""
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    return granted is not None and granted.strip().partition(",")[0] in {"", "-1"}


def find_driver_program(root: Path = Path("/")) -> str | None:
    """Return the path of nvidia-smi, or None. WSL and Colab keep it in folders that are not in every PATH."""
    places = (os.environ.get("PATH", os.defpath), str(root / "usr/lib/wsl/lib"), str(root / "opt/bin"))
    return shutil.which("nvidia-smi", path=os.pathsep.join(places))


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Return whether there is a device file of a GPU, and CUDA_VISIBLE_DEVICES does not hide all GPUs.

    In WSL the file is there for GPUs of all makers, and NVIDIA's driver has a library for CUDA beside it.
    """
    if hides_gpus():
        return False
    wsl = (devices / "dxg").exists() and Path("/usr/lib/wsl/lib/libcuda.so.1").exists()
    return wsl or (devices / "nvmap").exists() or any(True for _ in devices.glob("nvidia[0-9]*"))


def choose_ports(count: int) -> Cluster:
    """Choose ports that are free now. TensorFlow listens there on all addresses of this machine."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return Cluster(addresses=tuple(f"127.0.0.1:{listener.getsockname()[1]}" for listener in taken))


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
    return environment or _describe(plan, reused=False)


def follow(
    argv: Sequence[str],
    job: Job,
    listener: Listener | None,
    started: Callable[[Stop], object] | None,
    *,
    variables: Mapping[str, str] | None = None,
    stop: Callable[..., object] = processes.stop,
) -> int:
    """Run a job's command to its end, as :meth:`Engine.run` does. ``stop`` ends its process within ``grace`` s."""

    def end(process: "subprocess.Popen[str]") -> None:
        stop(process, grace=job.grace)
        if signals.is_raised() and process.returncode == signals.INTERRUPTED and not job.log:
            signals.mark_told()  # the job itself has said so on standard error

    with (
        job.log.open("w") if job.log else nullcontext() as log,
        processes.starting(
            argv,
            end,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log or (subprocess.PIPE if listener else None),
            stderr=subprocess.STDOUT if log else None,
        ) as process,
    ):
        if started:
            started(lambda grace: stop(process, grace=grace))
        with deadline(job, lambda: stop(process, grace=job.grace)):
            for line in process.stdout or ():
                if listener:
                    listener(line.rstrip("\n"))
            return processes.shell_code(process.wait())


def interpreter(folder: Path) -> Path:
    return folder / "venv" / "bin" / "python"


def _is_foreign(folder: Path) -> bool:
    """Return whether an environment was copied or moved here, so that its programs name the folder it was made in.

    Each Python writes that folder into the script ``activate``. What has no such script was not made by ``venv``.
    """
    venv = folder / "venv"
    try:
        script = (venv / "bin" / "activate").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    names = {f'VIRTUAL_ENV="{venv}"', f"VIRTUAL_ENV={shlex.quote(str(venv))}"}  # older and newer releases of Python
    return names.isdisjoint(line.strip().removeprefix("export ") for line in script.splitlines())


def find_cuda(folder: Path) -> dict[str, str]:
    """Return the variables by which TensorFlow finds an environment's ptxas and libraries; images have links."""
    packages = next(iter(folder.glob("venv/lib/python3.*/site-packages/nvidia")), None)
    if packages is None:
        return {}
    # cuSOLVER: the library of TensorFlow 2.21 that opens it has no RUNPATH to its folder.
    libraries = [str(packages / name / "lib") for name in ("cuda_cupti", "cusolver")]
    libraries += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    flags = [*filter(None, [os.environ.get("XLA_FLAGS")]), f"--xla_gpu_cuda_data_dir={packages / 'cuda_nvcc'}"]
    return {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "XLA_FLAGS": " ".join(flags)}


def omit_tensorflow(locked: str) -> str:
    return _omit(locked, r"tensorflow(-cpu)?==")


def omit_libraries(locked: str) -> str:
    """Leave out the packages with NVIDIA's libraries, all but that with ptxas, which XLA compiles with."""
    return _omit(locked, r"nvidia-(?!cuda-nvcc-)")


def _omit(locked: str, pattern: str) -> str:
    entries = re.split(r"(?m)^(?=\S)", locked)
    return "".join(entry for entry in entries if not re.match(pattern, entry))


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


def _describe(plan: EnvironmentPlan, *, reused: bool) -> Environment:
    return Environment(
        kind=plan.kind,
        digest=plan.digest,
        reference=plan.reference,
        folder=plan.folder,
        reused=reused,
        instructions=plan.spec.instructions,
    )


def _list_commands(spec: EnvironmentSpec, folder: Path, variables: Mapping[str, str]) -> Commands:
    locked = folder / LOCKED if spec.wheel or spec.emulated else spec.locked
    named = ("env", *(f"{name}={value}" for name, value in variables.items())) if variables else ()
    pip = (*named, str(interpreter(folder)), "-I", "-m", "pip", "install", "--no-input")
    pip += ("--disable-pip-version-check", "--no-deps")
    wheel = ((*pip, "--no-index", str(spec.wheel)),) if spec.wheel else ()
    return (
        # Otherwise a module of that name in the current folder would run, and the caller's variables would count.
        (_find_python(spec.python), "-I", "-m", "venv", str(folder / "venv")),
        (*pip, "--require-hashes", "--report", str(folder / REPORT), "-r", str(locked)),
        *wheel,
    )


def _make(plan: EnvironmentPlan, console: Console) -> None:
    spec, folder = plan.spec, plan.folder
    require_space(folder.parent, NEEDED_BYTES["cuda" if spec.cuda and not spec.emulated else "cpu"])
    seals.make_key()  # before minutes are spent
    custody.clear(folder)
    folder.mkdir(mode=0o755)
    if spec.wheel or spec.emulated:
        locked = spec.locked.read_text()
        locked = omit_tensorflow(locked) if spec.wheel else locked
        files.write_atomically(folder / LOCKED, omit_libraries(locked) if spec.emulated else locked)
    _install(plan, console)
    _hide_credentials(folder / REPORT)
    listed, fingerprint = content.write(folder)
    record = manifest.Manifest(
        kind="environment",
        digest=plan.digest,
        parent=_describe_wheel(plan),
        facts={"python": spec.python, "requirements": spec.requirements, "engine": "host", "files": listed},
    )
    manifest.write(folder, record)
    custody.seal(folder, fingerprint)


def examine(folder: Path, identity: str) -> Custody:
    """Return whether an environment may be used. ``identity``: the digest of its plan."""
    if _is_foreign(folder):
        return Custody(doubt="it was made in another folder, which its programs name")
    record = manifest.read(folder)
    promised = record.facts.get("files") if record else None
    return custody.inspect(
        folder,
        identity,
        lambda: content.scan(folder).fingerprint(),
        lambda: content.find_change(folder, promised),
    )


def _hide_credentials(report: Path) -> None:
    """Take credentials out of the addresses in pip's report, which is kept beside the environment."""
    text = report.read_text()
    if (clean := hide(text)) != text:
        files.write_atomically(report, clean)


def _describe_wheel(plan: EnvironmentPlan) -> dict[str, Any]:
    """Describe the wheel by pip's report: https://pip.pypa.io/en/stable/reference/installation-report/."""
    if plan.spec.wheel:
        return {"kind": "wheel", "name": plan.spec.wheel.name, "digest": plan.inputs["wheel"]}
    from packaging.utils import canonicalize_name  # slow to load, and not needed where the environment exists

    report = json.loads((plan.folder / REPORT).read_text())
    names = manifest.PUBLISHED
    item = next(entry for entry in report["install"] if canonicalize_name(entry["metadata"]["name"]) in names)
    return {
        "kind": "wheel",
        "name": urlsplit(item["download_info"]["url"]).path.rsplit("/", 1)[-1],
        "digest": read_wheel_digest(item["download_info"]),
        "parent": {"kind": "lock", "name": plan.spec.locked.name, "digest": plan.inputs["requirements"]},
    }


def read_wheel_digest(download: Mapping[str, Any]) -> str:
    """Return the digest of a wheel by what pip wrote about its download; empty if pip named none.

    pip before 23.1, as Debian 12 has it, writes ``hash`` and no ``hashes``.
    """
    archive = download.get("archive_info", {})
    kind, _, value = archive.get("hash", "").partition("=")
    sha256 = archive.get("hashes", {}).get("sha256") or (value if kind == "sha256" else "")
    return f"sha256:{sha256}" if sha256 else ""


def _install(plan: EnvironmentPlan, console: Console) -> None:
    log = plan.folder / LOG
    total = plan.spec.locked.read_text().count("==")
    with console.follow("install") as status:
        for command in plan.commands:
            code = _follow(command, log, status, total)
            if code:
                raise _explain(log, command, code)


def _follow(command: tuple[str, ...], log: Path, status: Status, total: int) -> int:
    collected, streams = 0, {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with processes.starting(command, partial(processes.stop, grace=10), **streams) as process:
        with log.open("a") as stream:
            for line in process.stdout or ():
                stream.write(hide(line))
                collected += line.startswith("Collecting ")
                if line.startswith(("Collecting ", "  Downloading ", "Installing ")):
                    status.show(Work(line.strip(), collected, total, "packages", unknown=True))
        return process.wait()


def _find_python(version: str) -> str:
    interpreter = interpreters.search(version)
    if interpreter is None:
        raise PreflightError(
            f"Python {version} is not on this machine",
            why=f"the locked set is for Python {version}, and this one is {sys.version.split()[0]}",
            remedy=f"install python{version}, or use --engine docker",
        )
    return str(interpreter)


def require_space(folder: Path, needed: int) -> None:
    """Raise a PreflightError if the disk of a folder has fewer free bytes than needed."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PreflightError(
            f"too little disk at {folder}: {free / 2**30:.1f} GiB free, {needed / 2**30:.0f} GiB needed",
            remedy="free space, run `toolkit clean`, or set TOOLKIT_STATE to a folder on a larger disk",
        )


def _explain(log: Path, command: tuple[str, ...], code: int) -> ToolkitError:
    lines = log.read_text().splitlines()
    if any(processes.DISK_FULL.search(line) for line in lines[-12:]):
        return processes.describe_full_disk("filled up while installing")
    if any(processes.OTHER_BYTES.search(line) for line in lines):
        return processes.describe_wrong_package(f"see {log}")
    program = command[command.index("-m") :]
    from toolkit import diagnosis  # only a failure needs it

    cause = diagnosis.name_cause("\n".join(lines))
    return BuildError(
        f"{' '.join(program[:3])} failed with exit code {code}",
        why="its last lines:\n    " + "\n    ".join(lines[-12:]),
        remedy=f"the whole log is {log}\n{cause}".strip(),
    )
