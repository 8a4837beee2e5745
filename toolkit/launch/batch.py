"""Writes what a batch system reads to start workers: a Slurm script."""

import itertools
import math
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkit.base import project
from toolkit.base.errors import (
    PreflightError,
    UsageError,
)
from toolkit.jobs.training_job import GRACE_SECONDS
from train.cluster.tf_config import HIGHEST_PORT
from train.peers import PORT
from train.system.signals import INTERRUPTED

RESTARTS = 100
"""How often a job goes back to the queue, so that one which never saves anything ends."""


_PLACES: Final = (("partition", "p"), ("account", "A"), ("qos", "q"), ("constraint", "C"), ("reservation", ""))
"""Options of sbatch that decide on which nodes a job may run, with their letters."""

SAVE_SECONDS: Final = 2 * GRACE_SECONDS + 60
"""A job saves at most so long before its limit: Slurm may send a signal up to a minute early."""

SHORTEST_SECONDS: Final = 600
"""The start takes a minute or two of what a limit leaves before the save."""

OF_SBATCH: Final = frozenset(
    [
        "-t",
        "-p",
        "-A",
        "-C",
        "-w",
        "-x",
        "--time",
        "--partition",
        "--account",
        "--qos",
        "--constraint",
        "--reservation",
        "--mem",
        "--mem-per-cpu",
        "--nodelist",
        "--exclude",
        "--exclusive",
        "--mail-type",
        "--mail-user",
        "--licenses",
        "--gres",
    ]
)
"""Options of sbatch that users write in the wrong place. None is one of the training job."""

_OF_LAUNCH: Final = {
    ("-N", "--nodes"): "--nodes",
    ("-n", "--ntasks", "--ntasks-per-node"): "--nodes or --gpus",
    ("-c", "--cpus-per-task"): "--cpus",
    ("-G", "--gpus", "--gpus-per-node", "--gpus-per-task"): "--gpus",
}
"""Options of sbatch that the script sets, and the options of the launcher in their place."""

_STOPPING: Final = ("--no-requeue", "--signal", "-a", "--array")
"""Options of sbatch with which a job could not save, or not go on."""

_FREE_SECONDS: Final = 5
_DRIVER_SECONDS: Final = 20
"""How long a node may take to be free, and to answer."""


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    """What a job asks Slurm for. What is 0 or empty is left to Slurm."""

    nodes: int
    cpus: int = 0  # of a worker
    gpus: int = 0  # of a node, each with a worker of its own
    gpu_type: str = ""  # as the gres of the cluster names it, ``a100``
    options: tuple[str, ...] = ()  # of sbatch, as the user wrote them
    port: int = PORT

    @property
    def workers(self) -> int:
        return self.nodes * max(1, self.gpus)

    @property
    def partition(self) -> str:
        return self.find_option("partition", "p")

    @property
    def seconds(self) -> float:
        """Return its time limit; infinity if that is left to Slurm."""
        limit = self.find_option("time", "t") or os.environ.get("SBATCH_TIMELIMIT", "")
        return read_seconds(limit) if limit else math.inf

    def find_option(self, name: str, letter: str) -> str:
        """Return what an option or variable of sbatch says, such as ``partition``; empty if that is left to Slurm."""
        words = shlex.split(" ".join(self.options).replace("=", " "))
        named = []
        for word, after in itertools.pairwise([*words, ""]):
            if word in {f"-{letter}", f"--{name}"}:
                named.append(after)
            elif letter and re.match(f"-{letter}.", word):  # a letter may have its value at once, -t0:30:00
                named.append(word[2:])
        return named[-1] if named else os.environ.get(f"SBATCH_{name.upper()}", "")


def read_gpus(text: str) -> tuple[str, int]:
    """Return type and number of ``a100:4`` or ``4``. Raises UsageError if it is neither."""
    kind, _, count = text.rpartition(":")
    if not count.isdecimal() or not re.fullmatch(r"[\w.-]*", kind):
        raise UsageError(
            f"--gpus {text} is no number of GPUs of a machine",
            remedy="give a number, or a type that Slurm knows and a number, such as --gpus 4 or --gpus a100:4",
        )
    return kind, int(count)


def start_peers(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of every worker, which finds its place by Slurm's variables."""
    module = command.index("train")
    return (*command[:module], "train.peers", "slurm", *command[module + 1 :])


def fill_in_interpreter(command: Sequence[str], interpreter: str) -> tuple[str, ...]:
    """Return a host job's command with its files named from the root, and perhaps another interpreter."""
    first = next(index for index, word in enumerate(command) if word.endswith("/bin/python"))
    python = interpreter or str(Path(command[first]).absolute())
    return (*command[:first], python, *command[first + 1 :])


def write_slurm(name: str, command: Sequence[str], request: SlurmRequest) -> str:
    """Return the script. ``command`` runs one worker; it is the same on all nodes."""
    gpu = f"{request.gpu_type}:1" if request.gpu_type else "1"
    values = {
        "name": name,
        "nodes": request.nodes,
        "options": request.options,
        "port": request.port,
        "cpus": request.cpus,
        "gpu": gpu if request.gpus else "",
        "tasks": max(1, request.gpus),
        "folder": Path.cwd(),
        "log": f"{name}-%j.log",
        "command": command,
        "grace": GRACE_SECONDS,
        "restarts": RESTARTS,
        "interrupted": INTERRUPTED,
    }
    return _render("slurm.sh.j2", values, lambda value: shlex.quote(str(value)))


def require_places(request: SlurmRequest, words: Sequence[str]) -> None:
    """Raise a UsageError for an option on the wrong side of ``--``, and for one that the script must set itself.

    ``words`` are the options that go to the job.
    """
    for word, after in itertools.pairwise([*words, ""]):
        name, equals, value = word.partition("=")
        if name in OF_SBATCH:
            value = value if equals or after.startswith("-") else after
            raise UsageError(
                f"{name} is an option of sbatch", remedy=f"put it after `--`, as in `-- {f'{name} {value}'.strip()}`"
            )
    for word in request.options:
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        own = next((own for names, own in _OF_LAUNCH.items() if name in names), "")
        if name == "--gres" and "gpu" in request.find_option("gres", ""):
            own = "--gpus"
        if own:
            raise UsageError(
                f"{name} cannot be passed on: the script sets it", remedy=f"give {own} before `--` instead"
            )
        if name in _STOPPING:
            raise UsageError(
                f"{name} cannot be passed on",
                why="the script itself sets what lets a job save and go on after a stop",
                remedy=f"leave {name} out",
            )


def require_time(request: SlurmRequest) -> None:
    """Raise a UsageError for a time limit that leaves nothing before the save."""
    if 0 < request.seconds <= SAVE_SECONDS:  # 0 stands for no limit
        raise UsageError(
            f"a limit of {request.seconds:g} seconds leaves no time to train",
            why=f"a job saves and goes back to the queue at most {SAVE_SECONDS} seconds before its limit",
            remedy="give 10 minutes or more, as in `-- --time 0:10:00`",
        )


def require_ports(request: SlurmRequest) -> None:
    """Raise a UsageError if there are not enough ports from the first on, one for each worker."""
    if request.port + request.workers - 1 > HIGHEST_PORT:
        raise UsageError(
            f"{request.workers} workers need the ports from {request.port} on, and {HIGHEST_PORT} is the last",
            remedy=f"give --port {PORT}, or another below {HIGHEST_PORT + 2 - request.workers}",
        )


def require_slurm() -> None:
    """Raise a PreflightError where no job can be submitted."""
    if shutil.which("sbatch") is None:
        raise PreflightError(
            "sbatch is not on this machine",
            why="only a machine of a Slurm cluster can submit jobs to it",
            remedy="run this there, or print the script with --dry-run",
        )


def find_gpu_types(partition: str) -> tuple[str, ...]:
    """Return the types of GPUs that the nodes of a partition have, or of the default one."""
    rows = [line.split("|") for line in _ask("sinfo", "--noheader", "--format=%P|%G").stdout.splitlines()]
    names = partition.split(",") if partition else [name for name, _ in rows if name.endswith("*")]
    found = [re.findall(r"gpu:([^:,(]+):\d", gres) for name, gres in rows if {name, name.rstrip("*")} & {*names}]
    return tuple(dict.fromkeys(itertools.chain(*found)))


def ask_driver(request: SlurmRequest) -> str:
    """Ask a node for its NVIDIA driver; empty if none is free at once, or none answers.

    A job of a second does it, with one GPU and where the real job is to run.
    """
    where = [f"--{name}={value}" for name, letter in _PLACES if (value := request.find_option(name, letter))]
    gpu = f"{request.gpu_type}:1" if request.gpu_type else "1"
    job = ("--ntasks=1", f"--gpus-per-node={gpu}", "--mem=100M", "--time=1", f"--immediate={_FREE_SECONDS}", "--quiet")
    argv = ("srun", "--job-name=toolkit-driver", *where, *job, "nvidia-smi")
    try:
        said = _ask(*argv, "--query-gpu=driver_version", "--format=csv,noheader", seconds=_DRIVER_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"(?m)^\d{3}\.\d+(\.\d+)?$", said)
    return found[0] if found else ""


def submit(script: Path) -> str:
    """Submit a script, and return the job's number. Raises PreflightError if Slurm could never start it."""
    tested = _ask("sbatch", "--test-only", str(script))
    if tested.returncode:
        names = dict.fromkeys(_ask("sinfo", "--noheader", "--format=%R").stdout.split())
        tests = {name: _ask("sbatch", "--test-only", f"--partition={name}", str(script)) for name in names}
        fitting = [name for name, test in tests.items() if test.returncode == 0]
        raise _refuse(tested.stderr, script, f"it can start in: {', '.join(fitting)}" if fitting else "")
    done = _ask("sbatch", "--parsable", str(script))
    if done.returncode:
        raise _refuse(done.stderr, script)
    number = done.stdout.strip().partition(";")[0]
    # Slurm queues a job although its time is above the limit of the partition, unless the site forbids that.
    queued = _ask("squeue", "--noheader", f"--jobs={number}", "--format=%l|%P").stdout.strip()
    asked, _, partitions = queued.partition("|")
    limits = _ask("sinfo", "--noheader", f"--partition={partitions}", "--format=%l").stdout.split()
    if limits and read_seconds(asked) > max(map(read_seconds, limits)):
        _ask("scancel", number)
        raise _refuse(f"its time of {asked} is above the limit of {', '.join(dict.fromkeys(limits))}", script)
    return number


def read_seconds(limit: str) -> float:
    """Return a time limit, as Slurm reads and prints it, in seconds: ``30``, ``30:00``, ``1-12``, ``1-12:00:00``.

    A number alone is of minutes, and of hours after days. Infinity for a word.
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", limit):
        return math.inf if limit != "NOT_SET" else 0
    days, dash, clock = limit.rpartition("-")
    first = [] if dash or clock.count(":") == 2 else [0]
    hours, minutes, seconds, *_ = (*first, *map(int, clock.split(":")), 0, 0)
    return 86400 * int(days or 0) + 3600 * hours + 60 * minutes + seconds


def _ask(*argv: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm."""
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=seconds)


def _refuse(why: str, script: Path, remedy: str = "") -> PreflightError:
    """Return the error that gives Slurm's reason, and names what its partitions have."""
    rows = _ask("sinfo", "--noheader", "--format=%R (limit %l, nodes of %c cores, %m MB, %G)").stdout.splitlines()
    has = f"the partitions are {'; '.join(dict.fromkeys(rows))}"
    return PreflightError(
        "Slurm refuses the job", why=why.strip(), remedy=f"{remedy or has}; the script is {project.shorten(script)}"
    )


def _render(name: str, values: Mapping[str, Any], write: Callable[[Any], str]) -> str:
    """Return a template filled with values, each of which ``write`` makes safe for the language of the template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow to load

    templates = Environment(
        loader=FileSystemLoader(project.locate("toolkit/launch/templates")),
        autoescape=False,  # noqa: S701 - these are not pages
        finalize=write,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template(name).render(values)
