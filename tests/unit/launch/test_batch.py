import copy
import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from kubeflow_trainer_api import models

from tests.command import Run
from toolkit.cli import workers
from toolkit.engine import Job
from toolkit.engine.container import describe
from toolkit.launch.batch import (
    PERMANENT,
    KubernetesRequest,
    Resources,
    SlurmRequest,
    describe_kubernetes,
    print_objects,
    write_slurm,
)
from toolkit.training_job import GRACE_SECONDS
from train.cli import _collect, make_app, parse

MODELS = {
    "Job": models.IoK8sApiBatchV1Job,
    "Service": models.IoK8sApiCoreV1Service,
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
}
CUDA = ("--cuda", "12.6.1", "--cudnn", "9.5.0")
KUBERNETES = "1.34"
"""The release whose schemas are asked."""


def make(kind: str = "job", **changes: Any) -> list[dict[str, Any]]:
    resources = Resources(cpus=4, memory="16Gi", gpus=1)
    asked = {"image": "registry.example.org/train:1", "workers": 3, "resources": resources, "runs": "runs", **changes}
    request = KubernetesRequest(kind=kind, **asked)
    return describe_kubernetes(parse(["digits", "--shards", "3", "--batch-size", "60"]), ["digits"], request)


def check(value: dict[str, Any]) -> None:
    """Raise an error if a Kubernetes or Kubeflow library finds fault with an object, or drops a part of it."""
    if value["kind"] in {"Job", "Service", "Deployment"}:
        kubernetes_validate.validate(value, KUBERNETES, strict=True)
    if value["kind"] not in MODELS:
        return
    read = MODELS[value["kind"]].from_dict(copy.deepcopy(value))
    assert read is not None
    kept = json.loads(json.dumps(read.to_dict(), default=str))
    missing = list(find_missing(value, kept))
    assert not missing, missing


def find_missing(given: object, kept: object, place: str = "") -> Sequence[str]:
    if isinstance(given, Mapping):
        kept = kept if isinstance(kept, Mapping) else {}
        parts = [(f"{place}.{name}", value, kept.get(name)) for name, value in given.items()]
    elif isinstance(given, list):
        kept = kept if isinstance(kept, list) and len(kept) == len(given) else [None] * len(given)
        parts = [(f"{place}[{index}]", value, kept[index]) for index, value in enumerate(given)]
    else:
        return [] if given == kept else [place]
    return [found for name, value, other in parts for found in find_missing(value, other, name)]


@pytest.mark.parametrize("kind", ["job", "trainjob"])
@pytest.mark.parametrize("changes", [{}, {"resources": Resources(), "data": "data", "namespace": "lab"}])
def test_the_libraries_find_no_fault(kind: str, changes: dict[str, Any]) -> None:
    for value in make(kind, **changes):
        check(value)


@pytest.mark.parametrize(
    ("kind", "place", "wrong"),
    [
        ("job", "spec.completions", "3"),
        ("job", "spec.completionMod", "Indexed"),
        ("job", "spec.completionMode", "Sorted"),
        ("job", "spec.template.spec.restartPolicie", "Never"),
        ("trainjob", "spec.trainer.numNode", 3),
        ("trainjob", "spec.trainer.resourcesPerNode.limits", {"cpu": [4]}),
        ("trainjob", "spec.runtimeRef", {}),
    ],
)
def test_a_wrong_object_is_found(kind: str, place: str, wrong: object) -> None:
    value = make(kind)[-1]
    *folders, name = place.split(".")
    inner = value
    for folder in folders:
        inner = inner[folder]
    inner[name] = wrong
    with pytest.raises(Exception):  # noqa: B017, PT011 - the libraries have errors of their own
        check(value)


def find_pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    owner = (
        objects[-1]
        if objects[-1]["kind"] == "Job"
        else objects[0]["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    )
    pod: dict[str, Any] = owner["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("kind", ["job", "trainjob"])
def test_pods_are_confined_as_containers_are(kind: str) -> None:
    own = describe(Job(title="x", argv=()), image="i")
    pod = find_pod(make(kind))
    (worker,) = pod["containers"]
    assert worker["securityContext"] == {
        "allowPrivilegeEscalation": "no-new-privileges" not in own.security_opt,
        "readOnlyRootFilesystem": own.read_only,
        "capabilities": {"drop": list(own.cap_drop)},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["terminationGracePeriodSeconds"] == GRACE_SECONDS
    assert pod["automountServiceAccountToken"] is False
    places = {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert places == {"/runs", "/data", "/dev/shm", *own.tmpfs}
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in worker["volumeMounts"]}


def test_an_eviction_is_no_failure_and_a_wrong_option_is_not_tried_again() -> None:
    policy = make()[-1]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["action"] for rule in policy] == ["Ignore", "FailJob"]
    assert policy[1]["onExitCodes"]["values"] == PERMANENT == [1, 2, 4, 7, 8, 9, 12]


def test_the_service_leads_to_the_pods_of_the_job() -> None:
    service, job = make()
    pod = find_pod([job])
    variables = {item["name"]: item["value"] for item in pod["containers"][0]["env"]}
    name = job["metadata"]["name"]
    assert (
        variables["TOOLKIT_PEER"]
        == f"{name}-{{index}}.{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    )
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == int(variables["TOOLKIT_WORKERS"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--image", "toolkit/train:cpu-1", "--runs-claim", "runs"], "is in no registry"),
        (["--image", "a.b/train:1", "--runs-claim", "runs", "--workers", "3"], "3 workers cannot share 4 shards"),
        (["--image", "a.b/train:1", "--runs-claim", "runs", "--data-dir", "."], "is a path on this machine"),
        (["--image", "a.b/train:1", "--runs-claim", "runs", "--config", "here"], "here is a path on this machine"),
        (["--image", "a.b/train:1"], "--runs-claim"),
    ],
)
def test_what_no_pod_could_do_is_refused(run: Run, arguments: list[str], message: str) -> None:
    (run.folder / "here").write_text(yaml.safe_dump(parse(["cifar10", "--shards", "4"]).as_dict()))
    done = run("launch", "kubernetes", "cifar10", "--shards", "4", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("kind", ["job", "trainjob"])
def test_what_is_printed_is_what_was_checked(run: Run, kind: str) -> None:
    arguments = ("--image", "a.b/train:1", "--runs-claim", "runs", "--kind", kind, "--cpus", "2", "--mem", "4Gi")
    done = run("launch", "kubernetes", "digits", "--shards", "2", *arguments)
    assert done.returncode == 0, done.stderr
    assert "&id" not in done.stdout
    for value in yaml.safe_load_all(done.stdout):
        check(value)


def test_the_script_for_slurm_is_one_that_bash_reads(tmp_path: Path) -> None:
    resources = Resources(cpus=4, memory="16G", gpus=2)
    request = SlurmRequest(nodes=3, resources=resources, partition="long", account="lab", time="1-0", port=3000)
    assert request.workers == 6
    script = write_slurm("toolkit-x", ["env", "A=b c", "python", "-m", "train"], request)
    lines = script.splitlines()
    directives = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")}
    assert directives >= {
        "--nodes=3",
        "--ntasks-per-node=2",
        "--gpus-per-task=1",
        "--cpus-per-task=4",
        "--mem=16G",
        "--partition=long",
        "--account=lab",
        "--time=1-0",
        "--requeue",
        f"--signal=B:USR1@{2 * GRACE_SECONDS}",
    }
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1].startswith("#SBATCH"), "Slurm reads no directive after a command"
    assert "@" not in script.replace("USR1@", "")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_no_value_changes_what_is_around_it() -> None:
    words = [
        "it's",
        '"',
        "{{ image }}",
        "{% if %}",
        "<&>",
        "$HOME `x` \\ \n#",
        "null",
        "1e3",
        "- a: b",
        "é\u2028\U0001f600",
    ]
    request = KubernetesRequest(kind="job", image="a.b/train:1", workers=1, resources=Resources(), runs="yes")
    objects = describe_kubernetes(parse(["digits"]), words, request)
    assert find_pod(objects)["containers"][0]["args"][: len(words)] == words
    assert list(yaml.safe_load_all(print_objects(objects))) == objects
    script = write_slurm("x", ["echo", *words], SlurmRequest(nodes=1, resources=Resources()))
    command = script.partition("srun ")[2].partition(" &\nstep=")[0]
    assert shlex.split(command)[-len(words) :] == words


STEP = """#!/bin/bash
echo "$@" > arguments
trap 'echo saved > saved; exit 130' TERM
[ "$STEP" = done ] && exit 3
touch ready
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("sent", "requeued"), [("USR1", True), ("TERM", False), ("", False)])
def test_the_script_saves_and_goes_back_to_the_queue_before_the_limit(
    tmp_path: Path, sent: str, requeued: bool
) -> None:
    """Slurm's programs are stand-ins here; a real Slurm is in the tests with containers."""
    for name, text in (("srun", STEP), ("scontrol", '#!/bin/bash\necho "$@" > requeued\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = write_slurm("x", ["python", "-m", "train"], SlurmRequest(nodes=2, resources=Resources()))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "STEP": "" if sent else "done"}
    with subprocess.Popen(["bash"], stdin=subprocess.PIPE, cwd=tmp_path, env=variables, text=True) as process:
        assert process.stdin
        process.stdin.write(script)
        process.stdin.close()
        while sent and not (tmp_path / "ready").exists():
            assert process.poll() is None
        if sent:
            subprocess.run(["kill", f"-{sent}", str(process.pid)], check=True)
        assert process.wait(timeout=60) == (130 if sent else 3)
    assert (tmp_path / "saved").exists() == bool(sent)
    assert (tmp_path / "requeued").exists() == requeued
    assert (tmp_path / "arguments").read_text().endswith("python -m train\n")


def test_a_machine_without_slurm_can_print_and_not_submit(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--dry-run", "--interpreter", "/opt/python")
    assert done.returncode == 0, done.stderr
    assert "/opt/python -P -m train.peers slurm digits --shards 2" in done.stdout
    done = run("launch", "slurm", "digits", "--shards", "2", PATH="/nowhere")
    assert done.returncode == 4
    assert "sbatch is not on this machine" in done.stderr
    assert not list(run.folder.iterdir())


@pytest.mark.parametrize("scheduler", ["local", "slurm", "kubernetes"])
def test_no_option_of_a_scheduler_is_one_of_the_job(scheduler: str) -> None:
    """The launcher takes its own options first, so the job would never get one of the same name."""
    launch = typer.main.get_command(workers)
    assert isinstance(launch, typer.core.TyperGroup)
    own, job = (
        {name for parameter in command.params for name in parameter.opts}
        for command in (launch.commands[scheduler], typer.main.get_command(make_app(_collect)))
    )
    assert {"--shards", "--memory"} <= job
    # A job on this machine is told how progress is shown. One of a scheduler has no terminal, so it prints lines.
    assert own & job <= {"dataset", "--json", "--progress"}


def test_the_job_gets_its_own_option_of_memory(run: Run) -> None:
    done = run("launch", "slurm", "digits", "--shards", "2", "--mem", "9G", "--memory", "recompute", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --mem=9G" in done.stdout
    assert "--memory recompute" in done.stdout


def test_a_port_without_enough_after_it_is_refused(run: Run) -> None:
    options = ("digits", "--shards", "16", "--nodes", "2", "--gpus", "8", *CUDA, "--dry-run")
    done = run("launch", "slurm", *options, "--port", "65521")
    assert done.returncode == 2
    assert "16 workers need the ports from 65521 on, and 65535 is the last" in done.stderr
    assert "or another below 65521" in done.stderr
    assert run("launch", "slurm", *options, "--port", "65520").returncode == 0
