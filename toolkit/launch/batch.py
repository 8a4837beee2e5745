"""Writes what a batch system reads to start workers or members of a sweep: a Slurm script, or Kubernetes' objects."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import naming, project
from toolkit.engine.user import IMAGE_USER
from toolkit.errors import (
    CheckError,
    DataError,
    EngineError,
    GpuError,
    IntegrityError,
    PreflightError,
    ToolkitError,
    UsageError,
)
from toolkit.settings import Settings
from toolkit.training_job import GRACE_SECONDS
from train.cli import find_config
from train.cluster.tf_config import HIGHEST_PORT
from train.config.configuration import TrainConfig
from train.peers import PORT
from train.service.options import count_grace

RESTARTS = 100
"""How often a job goes back to the queue, so that one which never saves anything ends."""

PERMANENT = sorted(
    kind.exit_code
    for kind in (ToolkitError, UsageError, PreflightError, CheckError, IntegrityError, DataError, GpuError)
)
"""Exit codes of failures that would happen again: a defect, an option, too little memory or disk, a check, the data, no
usable GPU.
"""

_REGISTRY = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|[\w.-]+:\d+)/.+")
"""An image with the name of its registry; without one, a name is of an image on this machine."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a worker gets; what is empty is left to the scheduler."""

    cpus: int = 0
    memory: str = ""  # as the scheduler writes it: 16G for Slurm, 16Gi for Kubernetes
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    nodes: int
    resources: Resources  # its GPUs are those of a node, each with a worker of its own
    partition: str = ""
    account: str = ""
    time: str = ""  # limit, as 1-12:00:00
    port: int = PORT
    members: int = 0  # of a sweep, each a job of an array; 0: one job for all workers of a run
    slots: int = 0  # members at the same time; 0: all

    @property
    def workers(self) -> int:
        return self.nodes * max(1, self.resources.gpus)


def start_peers(command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of every worker, which finds its place by Slurm's variables."""
    module = command.index("train")
    return (*command[:module], "train.peers", "slurm", *command[module + 1 :])


def start_members(commands: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return one command for all members of a sweep, which picks its own by Slurm's variable.

    ``commands`` run one member each, and differ in the job's arguments alone.
    """
    module = commands[0].index("train")
    return (
        *commands[0][:module],
        "train.member",
        "slurm",
        *(shlex.join(command[module + 1 :]) for command in commands),
    )


def fill_in_interpreter(command: Sequence[str], interpreter: str) -> tuple[str, ...]:
    """Return a host job's command with its files named from the root, and perhaps another interpreter."""
    first = next(index for index, word in enumerate(command) if word.endswith("/bin/python"))
    python = interpreter or str(Path(command[first]).absolute())
    return (*command[:first], python, *command[first + 1 :])


def write_slurm(name: str, command: Sequence[str], request: SlurmRequest) -> str:
    """Return the script. ``command`` runs one worker; it is the same on all nodes.

    For a sweep, the last words of ``command`` are the command lines of all members.
    """
    resources, first = request.resources, len(command) - request.members
    values = {
        "name": name,
        "nodes": request.nodes,
        "partition": request.partition,
        "account": request.account,
        "time": request.time,
        "port": request.port,
        "slots": request.slots,
        "memory": resources.memory,
        "cpus": resources.cpus,
        "gpus": resources.gpus,
        "tasks": max(1, resources.gpus),
        "folder": Path.cwd(),
        "log": f"{name}-%A_%a.log" if request.members else f"{name}-%j.log",
        "command": command[:first],
        "members": command[first:],
        "grace": GRACE_SECONDS,
        "restarts": RESTARTS,
    }
    return _render("slurm.sh.j2", values, lambda value: shlex.quote(str(value)))


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


def submit(script: Path) -> str:
    """Submit a script, and return the job's number. Raises PreflightError if Slurm refuses it."""
    done = subprocess.run(["sbatch", "--parsable", str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreflightError(
            "Slurm refuses the job", why=done.stderr.strip(), remedy=f"the script is {project.shorten(script)}"
        )
    return done.stdout.strip().partition(";")[0]


@dataclass(frozen=True, kw_only=True)
class KubernetesRequest:
    kind: str  # ``job``, ``trainjob`` or ``deployment``
    image: str
    workers: int
    resources: Resources
    runs: str  # persistent volume claim of the runs
    data: str = ""  # claim of the downloaded data; empty: each worker downloads it for itself
    namespace: str = ""


def require_portable(
    config: TrainConfig, arguments: Sequence[str], settings: Settings, request: KubernetesRequest
) -> None:
    """Raise a UsageError if a pod could not find the image, or a file or folder that the options name."""
    _require_registry(request.image)
    local: list[object] = [find_config(arguments), config.data_dir, config.data_sha256 and config.dataset]
    local += [config.continue_from]
    local += [config.init_from] if not config.fetches_weights else []
    local += [
        folder for folder, usual in ((config.out, settings.runs), (config.cache_dir, settings.data)) if folder != usual
    ]
    if any(local):
        raise UsageError(
            f"{next(filter(None, local))} is a path on this machine",
            why="a pod sees the image and its volumes alone",
            remedy="leave it out, or use a known data set or hf:OWNER/NAME",
        )


def require_gpu_image(request: KubernetesRequest, settings: Settings) -> None:
    """Raise a UsageError if pods get GPUs and the image is here and cannot use them.

    Of an image that is only in its registry nothing is known: its job ends if it finds no GPU.
    """
    if not request.resources.gpus:
        return
    from toolkit.doctor import unused
    from toolkit.engine import client  # the engine's SDK is slow to load

    try:
        image = client.inspect(request.image)
    except EngineError:
        return
    if image and image.labels.get(naming.OWNER_LABEL) and not image.labels.get(f"{naming.LABEL_PREFIX}.cuda"):
        raise UsageError(
            f"GPUs were asked for, and the image {request.image} holds the CPU set",
            why="it has neither GPU code nor NVIDIA's libraries",
            remedy=f"make it by `toolkit build-image {unused.name_flags(settings)}`, or leave out --gpus",
        )


def _require_registry(image: str) -> None:
    if not _REGISTRY.fullmatch(image):
        raise UsageError(
            f"the image {image} is in no registry",
            why="each node of the cluster must be able to pull it",
            remedy="push it, and give its name with the registry, as HOST/NAME:TAG",
        )


def name_object(folder: Path, work: str = "train") -> str:
    """Return a name for objects: that of a run's or sweep's folder, as Kubernetes allows it, with room for a suffix."""
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower())[-38:]
    return f"{work}-{name.strip('-')}"


def describe_kubernetes(
    config: TrainConfig, arguments: Sequence[str], request: KubernetesRequest
) -> list[dict[str, Any]]:
    """Return the objects that train: a headless Service and an indexed Job, or a Kubeflow TrainJob and its runtime."""
    name = name_object(config.run_dir)
    host = f"{name}-{{index}}.{name}" if request.kind == "job" else f"{name}-node-0-{{index}}.{name}"
    return _fill(request.kind, name, request, peer=f"{host}:{PORT}", arguments=_place_in_pod(arguments))


def describe_sweep(
    folder: Path, members: Sequence[Sequence[str]], request: KubernetesRequest, slots: int
) -> list[dict[str, Any]]:
    """Return the indexed Job that trains the members of a sweep, given by their arguments.

    Each index is tried again for itself, so that a member that fails leaves the others alone.
    """
    commands = [shlex.join(_place_in_pod(arguments)) for arguments in members]
    parallelism = min(slots, len(members)) or len(members)
    return _fill("sweep", name_object(folder), request, members=commands, parallelism=parallelism)


def describe_service(run: str, request: KubernetesRequest, secret: str) -> list[dict[str, Any]]:
    """Return the Deployment and the Service that answer predictions of a run.

    ``run`` is the name of its folder in the claim, and ``secret`` that of the secret whose key ``token`` requests need.
    Raises a UsageError if the image is in no registry, or ``run`` is the name of no folder.
    """
    _require_registry(request.image)
    if Path(run).name != run or run in {"", ".", ".."}:
        raise UsageError(
            f"{run!r} is not the name of a folder",
            why="the pods see the claim of the runs alone",
            remedy="give the name that the folder of the run has in the claim",
        )
    name, grace = name_object(Path(run), "serve"), round(count_grace())
    return _fill("deployment", name, request, folder=f"/runs/{run}", secret=secret, grace=grace)


def print_objects(objects: Sequence[dict[str, Any]]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    return yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=120, explicit_start=True)


def _place_in_pod(arguments: Sequence[str]) -> list[str]:
    return [*arguments, "--out", "/runs", "--cache-dir", "/data", "--progress", "plain"]


def _fill(kind: str, name: str, request: KubernetesRequest, **values: Any) -> list[dict[str, Any]]:
    """Return the objects of a kind from the template, which says what they have in common."""
    import yaml  # takes a tenth of the time of `toolkit --help`

    metadata: dict[str, Any] = {"name": name, "labels": {"app.kubernetes.io/name": name, naming.OWNER_LABEL: "toolkit"}}
    if request.namespace:
        metadata["namespace"] = request.namespace
    usual = {
        "kind": kind,
        "metadata": metadata,
        "image": request.image,
        "workers": request.workers,
        "resources": _describe_resources(request.resources),
        "gpus": request.resources.gpus,
        "gpu_variable": naming.GPU_VARIABLE,
        "runs": request.runs,
        "data": request.data,
        "user": IMAGE_USER,
        "port": PORT,
        "grace": GRACE_SECONDS,
        "restarts": RESTARTS,
        "permanent": PERMANENT,
    }
    text = _render("kubernetes.yaml.j2", usual | values, _write_yaml)
    objects: list[dict[str, Any]] = yaml.safe_load(text)["objects"]
    return objects


def _describe_resources(resources: Resources) -> dict[str, dict[str, str]]:
    """Return requests and limits; they are equal, so that a pod is not ended for what another one uses."""
    amounts = {
        "cpu": str(resources.cpus) if resources.cpus else "",
        "memory": resources.memory,
        "nvidia.com/gpu": str(resources.gpus) if resources.gpus else "",
    }
    given = {name: amount for name, amount in amounts.items() if amount}
    return {"requests": given, "limits": given} if given else {}


def _write_yaml(value: object) -> str:
    """Return a value as JSON in ASCII, with the escapes of YAML: JSON would write an emoji as two surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return re.sub("[^ -~]", lambda letter: f"\\U{ord(letter[0]):08x}", text)


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
