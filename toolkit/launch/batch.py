"""Writes what a batch system reads to start workers or members of a sweep: a Slurm script, or Kubernetes' objects."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
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
from toolkit.training import GRACE_SECONDS
from train.cli import find_config
from train.cluster.cluster import HIGHEST_PORT
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
    return (*commands[0][:module], "train.member", "slurm", *(shlex.join(each[module + 1 :]) for each in commands))


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
    array = f"0-{request.members - 1}" if request.members else ""
    tasks = ["--ntasks-per-node", str(max(1, resources.gpus))]
    tasks += ["--cpus-per-task", str(resources.cpus)] if resources.cpus else []
    tasks += ["--gpus-per-task", "1"] if resources.gpus else []
    settings = {
        "job-name": name,
        "nodes": str(request.nodes),
        "mem": resources.memory,
        "partition": request.partition,
        "account": request.account,
        "time": request.time,
        "chdir": str(Path.cwd()),
        "array": f"{array}%{request.slots}" if request.slots else array,
        "output": f"{name}-%A_%a.log" if array else f"{name}-%j.log",
        "open-mode": "append",
        # USR1, to the script alone: a SIGTERM can also mean that the job was cancelled.
        "signal": f"B:USR1@{2 * GRACE_SECONDS}",
    }
    given = [f"--{key}={shlex.quote(value)}" for key, value in settings.items() if value]
    directives = [*given, "--requeue", *(f"{key}={value}" for key, value in zip(tasks[::2], tasks[1::2], strict=True))]
    # A worker that fails must not take worker 0 with it, which says what happened: the others get time to end.
    options = [*tasks, "--distribution=block", "--kill-on-bad-exit=0", f"--wait={GRACE_SECONDS}"]
    parts = {
        "directives": "\n".join(f"#SBATCH {each}" for each in directives),
        "port": str(request.port),
        "options": shlex.join(options),
        "command": " \\\n    ".join([shlex.join(command[:first]), *map(shlex.quote, command[first:])]),
        # The number of an array is also that of one of its jobs: to requeue that one would requeue all.
        "job": "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" if array else "$SLURM_JOB_ID",
        "restarts": str(RESTARTS),
    }
    text = project.locate("toolkit/launch/slurm.sh").read_text()
    return re.sub(r"@(\w+)@", lambda found: parts[found[1]], text)


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
    """Submit a script, and return the job's number. Raises PreflightError: Slurm refuses it."""
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
    local += [each for each, usual in ((config.out, settings.runs), (config.cache_dir, settings.data)) if each != usual]
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
        found = client.inspect(request.image)
    except EngineError:
        return
    if found and found.labels.get(naming.OWNER_LABEL) and not found.labels.get(f"{naming.LABEL_PREFIX}.cuda"):
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
    import yaml  # takes a tenth of the time of `toolkit --help`

    parts = yaml.safe_load(project.locate("toolkit/launch/kubernetes.yaml").read_text())
    name, count = name_object(config.run_dir), request.workers
    metadata = _describe_object(name, request)
    host = f"{name}-{{index}}.{name}" if request.kind == "job" else f"{name}-node-0-{{index}}.{name}"
    worker = {
        "image": request.image,
        "command": ["python", "-P", "-m", "train.peers", "kubernetes"],
        "args": _place_in_pod(arguments),
        "env": [
            {"name": "TOOLKIT_WORKERS", "value": str(count)},
            {"name": "TOOLKIT_PEER", "value": f"{host}:{PORT}"},
            *_require_gpu(request),
        ],
    }
    resources = _describe_resources(request.resources)
    pod = _fill_pod(parts["pod"], metadata, request)
    policy = parts["podFailurePolicy"]
    policy["rules"][1]["onExitCodes"]["values"] = PERMANENT
    if request.kind == "job":
        pod["spec"]["subdomain"] = name
        pod["spec"]["containers"][0] |= {**worker, "resources": resources, "ports": [{"containerPort": PORT}]}
        service, job = parts["service"], parts["job"]
        service["spec"]["selector"] = {"job-name": name}
        service["spec"]["ports"][0]["port"] = PORT
        job["spec"] |= {"completions": count, "parallelism": count, "backoffLimit": RESTARTS * count}
        job["spec"] |= {"podFailurePolicy": policy, "template": pod}
        return [service | {"metadata": metadata}, job | {"metadata": metadata}]
    runtime, job = parts["runtime"], parts["trainjob"]
    pod["spec"]["containers"][0]["image"] = request.image
    runtime["spec"]["mlPolicy"]["numNodes"] = count
    jobset = runtime["spec"]["template"]["spec"]
    jobset["failurePolicy"]["maxRestarts"] = RESTARTS
    jobset["replicatedJobs"][0]["template"]["spec"] |= {"podFailurePolicy": policy, "template": pod}
    job["spec"]["runtimeRef"]["name"] = name
    job["spec"]["trainer"] = {**worker, "numNodes": count, "resourcesPerNode": resources}
    return [runtime | {"metadata": metadata}, job | {"metadata": metadata}]


def describe_sweep(
    folder: Path, members: Sequence[Sequence[str]], request: KubernetesRequest, slots: int
) -> dict[str, Any]:
    """Return the indexed Job that trains the members of a sweep, given by their arguments.

    Each index is tried again for itself, so that a member that fails leaves the others alone.
    """
    import yaml

    parts = yaml.safe_load(project.locate("toolkit/launch/kubernetes.yaml").read_text())
    metadata = _describe_object(name_object(folder), request)
    pod, policy, job = _fill_pod(parts["pod"], metadata, request), parts["podFailurePolicy"], parts["job"]
    pod["spec"]["containers"][0] |= {
        "image": request.image,
        "command": ["python", "-P", "-m", "train.member", "kubernetes"],
        "args": [shlex.join(_place_in_pod(each)) for each in members],
        **({"env": required} if (required := _require_gpu(request)) else {}),
        "resources": _describe_resources(request.resources),
    }
    policy["rules"][1]["action"] = "FailIndex"
    policy["rules"][1]["onExitCodes"]["values"] = PERMANENT
    job["spec"] |= {"completions": len(members), "parallelism": min(slots, len(members)) or len(members)}
    job["spec"] |= {"backoffLimitPerIndex": RESTARTS, "podFailurePolicy": policy, "template": pod}
    return dict(job | {"metadata": metadata})


def describe_service(run: str, request: KubernetesRequest, secret: str) -> list[dict[str, Any]]:
    """Return the Deployment and the Service that answer predictions of a run.

    ``run`` is the name of its folder in the claim, and ``secret`` that of the secret whose key ``token`` requests need.
    Raises UsageError: the image is in no registry, or ``run`` is the name of no folder.
    """
    import yaml

    _require_registry(request.image)
    if Path(run).name != run or run in {"", ".", ".."}:
        raise UsageError(
            f"{run!r} is not the name of a folder",
            why="the pods see the claim of the runs alone",
            remedy="give the name that the folder of the run has in the claim",
        )
    parts = yaml.safe_load(project.locate("toolkit/launch/kubernetes.yaml").read_text())
    metadata = _describe_object(name_object(Path(run), "serve"), request)
    pod, server = _fill_pod(parts["pod"], metadata, request), parts["server"]
    arguments = [f"/runs/{run}", "--host", "0.0.0.0", "--port", str(server["ports"][0]["containerPort"])]  # noqa: S104
    spec, node = pod["spec"], pod["spec"]["containers"][0]
    node |= {"name": "serve", "image": request.image, "resources": _describe_resources(request.resources), **server}
    node["args"] = [*arguments, "--token-file", "/token/token"]
    node |= {"env": required} if (required := _require_gpu(request)) else {}
    for volumes in (node["volumeMounts"], spec["volumes"]):
        volumes[:] = [each for each in volumes if each["name"] != "data"]
    node["volumeMounts"].append({"name": "token", "mountPath": "/token", "readOnly": True})
    spec["volumes"].append({"name": "token", "secret": {"secretName": secret}})
    next(each for each in node["volumeMounts"] if each["name"] == "runs")["readOnly"] = True
    spec |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": round(count_grace())}
    deployment, service = parts["deployment"], parts["frontend"]
    labels = metadata["labels"]
    deployment["spec"] = {"replicas": request.workers, "selector": {"matchLabels": labels}, "template": pod}
    service["spec"]["selector"] = labels
    return [deployment | {"metadata": metadata}, service | {"metadata": metadata}]


def print_objects(objects: Sequence[dict[str, Any]]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
            return True

    return yaml.dump_all(objects, Dumper=Plain, sort_keys=False, width=120, explicit_start=True)


def _describe_object(name: str, request: KubernetesRequest) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": name, naming.OWNER_LABEL: "toolkit"}}
    return metadata | ({"namespace": request.namespace} if request.namespace else {})


def _require_gpu(request: KubernetesRequest) -> list[dict[str, str]]:
    """Return the variable with which the program in a pod that asks for GPUs ends if it finds none."""
    return [{"name": naming.GPU_VARIABLE, "value": "1"}] if request.resources.gpus else []


def _place_in_pod(arguments: Sequence[str]) -> list[str]:
    return [*arguments, "--out", "/runs", "--cache-dir", "/data", "--progress", "plain"]


def _fill_pod(pod: dict[str, Any], metadata: dict[str, Any], request: KubernetesRequest) -> dict[str, Any]:
    pod["metadata"]["labels"] = metadata["labels"]
    spec = pod["spec"]
    spec["terminationGracePeriodSeconds"] = GRACE_SECONDS
    spec["securityContext"] |= {"runAsUser": IMAGE_USER, "runAsGroup": IMAGE_USER, "fsGroup": IMAGE_USER}
    for name, claim in (("runs", request.runs), ("data", request.data)):
        spec["containers"][0]["volumeMounts"].append({"name": name, "mountPath": f"/{name}"})
        kind = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
        spec["volumes"].append({"name": name, **kind})
    return pod


def _describe_resources(resources: Resources) -> dict[str, dict[str, str]]:
    """Return requests and limits; they are equal, so that a pod is not ended for what another one uses."""
    amounts = {
        "cpu": str(resources.cpus) if resources.cpus else "",
        "memory": resources.memory,
        "nvidia.com/gpu": str(resources.gpus) if resources.gpus else "",
    }
    given = {name: amount for name, amount in amounts.items() if amount}
    return {"requests": given, "limits": given} if given else {}
