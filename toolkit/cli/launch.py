import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.command import ENVIRONMENT, LIMIT, Dataset, DryRun, Gpu, Limit, Session, Wheel, command, write_page

if TYPE_CHECKING:
    from toolkit.sweep import Sweep

Cpus = Annotated[int, typer.Option(min=0, help="Cores of each worker.")]
# Slurm's name, because --memory is an option of the job.
Memory = Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory, as the scheduler writes it.")]
SweepFile = Annotated[
    Path | None, typer.Option("--sweep", metavar="FILE", help="In place of DATASET: train each member of this sweep.")
]
CommandPool = Annotated[int, typer.Option(min=0, help="Members of the sweep at the same time; 0: all.")]

_OF_SWEEPS = ("slots", "limit")
_OF_WORKERS: Mapping[str, tuple[object, ...]] = {
    "nodes": (1,),
    "workers": (1,),
    "gpus": (0, 1),
    "kind": ("job",),
    "port": (),
}
"""Options for several workers of one run, each with the values that a member of a sweep can have."""


def _read_sweep(
    session: Session, context: typer.Context, file: Path | None, dataset: str, limit: int
) -> "Sweep | None":
    """Return the sweep whose members are to be trained, or None for a run on a data set.

    Raises UsageError if both are named, or none, or an option is for the other.
    """
    from toolkit import sweep
    from toolkit.errors import UsageError

    sources = {name: context.get_parameter_source(name) for name in context.params}
    given = {name: context.params[name] for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    if file is None:
        if not dataset:
            raise UsageError("there is nothing to train", remedy="name a data set, as digits, or --sweep FILE")
        if wrong := [name for name in _OF_SWEEPS if name in given]:
            raise UsageError(f"--{wrong[0]} is for a sweep", remedy="leave it out, or name the file with --sweep")
        return None
    words = [word for word in (dataset, *context.args) if word]
    if words:
        raise UsageError(
            f"a sweep does not go with {shlex.join(words)}",
            why="its file names the data set and the options of all members",
            remedy="write the options into the file, or leave out --sweep",
        )
    for name, value in given.items():
        if value not in _OF_WORKERS.get(name, (value,)):
            raise UsageError(
                f"a sweep does not go with --{name} {value}",
                why="that is for several workers, and each member is one worker",
                remedy="leave it out",
            )
    return sweep.read(file, session.settings, limit=limit)


def _summarise(file: Path, limit: int) -> str:
    """Return the command that compares the members of a sweep; it allows as many members as this one."""
    return shlex.join(
        ["toolkit", "sweep", str(file), "--summarise", *(["--limit", str(limit)] if limit != LIMIT else [])]
    )


@command(
    *ENVIRONMENT,
    remember=True,
    long=True,
)
def local(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    workers: Annotated[int, typer.Option(min=1, help="Containers or processes, which share the cores.")] = 2,
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Train with several workers on this machine, each with a GPU of its own if there are any.

    Options that are not listed here go to the job, as --shards: see `python -m train --help`.
    """
    from toolkit import pipeline, training_job
    from toolkit.launch.local import plan_task
    from toolkit.steps import run
    from train.cluster.tf_config import share

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training_job.read_arguments(arguments, settings)
    share(config.shards, workers)
    request = pipeline.Request(settings=settings, wheel=wheel, gpu=gpu, dry_run=dry_run)
    resolved = pipeline.choose_environment(pipeline.choose_set(request, console), console)
    prepared = pipeline.environment_task(resolved, console)
    trained = plan_task(resolved, prepared, arguments, config, console, workers=workers)
    if run([prepared, trained], console, dry_run=dry_run):
        write_page(session, config.run_dir)
        console.result(trained.result, training_job.describe(config, trained.result))
    elif resolved.engine.name != "docker":  # whose commands but the last do not wait for the end of a worker
        console.say(f"each of the last {workers} commands needs a shell of its own")


@command("tensorflow", "python", "cuda", "cudnn", "card", "ca_bundle", remember=True, engine="host")
def slurm(
    session: Session,
    context: typer.Context,
    dataset: Dataset = "",
    sweep: SweepFile = None,
    slots: CommandPool = 0,
    limit: Limit = LIMIT,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, with a worker each, or one for each GPU.")] = 2,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each machine.")] = 0,
    cpus: Cpus = 0,
    memory: Memory = "",
    partition: Annotated[str, typer.Option(metavar="NAME", help="Slurm's partition.")] = "",
    account: Annotated[str, typer.Option(metavar="NAME", help="Slurm's account.")] = "",
    time: Annotated[str, typer.Option(metavar="LIMIT", help="Time limit, after which the job is queued again.")] = "",
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port of worker 0; others use those after.")] = 2222,
    interpreter: Annotated[
        str, typer.Option(metavar="FILE", help="Python on the machines, with TensorFlow, in place of an environment.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")] = False,
) -> None:
    """Train with several workers in a Slurm job, or a sweep in an array of jobs, a member in each.

    A job goes on after its time limit, a requeue or a lost machine. Machines share this folder. Options that are not
    listed here go to the job: see `python -m train --help`.
    """
    from toolkit import files, pipeline, training_job
    from toolkit.launch import batch
    from train.cluster.tf_config import share

    console, settings = session.console, session.settings
    planned = _read_sweep(session, context, sweep, dataset, limit)
    if planned:
        runs, folder = [(member.arguments, member.config) for member in planned.members], planned.folder
    else:
        arguments = (dataset, *context.args)
        runs = [(arguments, training_job.read_arguments(arguments, settings))]
        folder = runs[0][1].run_dir
    request = batch.SlurmRequest(
        nodes=1 if planned else nodes,
        resources=batch.Resources(cpus=cpus, memory=memory, gpus=gpus),
        partition=partition,
        account=account,
        time=time,
        port=port,
        members=len(runs) if planned else 0,
        slots=slots,
    )
    share(runs[0][1].shards, request.workers)
    batch.require_ports(request)
    if not dry_run:
        batch.require_slurm()
    # An interpreter of the machines has a TensorFlow of its own; the job says if that one finds no GPU.
    gpu = False if interpreter else bool(gpus) or None
    asked = pipeline.Request(settings=settings, gpu=gpu, elsewhere=True, dry_run=dry_run)
    resolved = pipeline.choose_environment(pipeline.choose_set(asked, console), console)
    environment = resolved.existing
    if not (environment or interpreter or dry_run):
        prepared = pipeline.environment_task(resolved, console)
        environment = prepared.action()
    jobs = [training_job.plan(arguments, config, environment, gpu=bool(gpus)) for arguments, config in runs]
    commands = [
        batch.fill_in_interpreter(resolved.engine.commands(resolved.reference, job)[-1], interpreter) for job in jobs
    ]
    name = f"toolkit-{folder.name}"
    started = batch.start_members(commands) if planned else batch.start_peers(commands[0])
    script = batch.write_slurm(name, started, request)
    path = Path(settings.state).resolve() / f"{name}.sh"
    if dry_run:
        console.result({"script": script}, script.rstrip())
    else:
        files.require_writable(path.parent)
        files.write_atomically(path, script)
        number = batch.submit(path)
        title = f"array {number} of {len(runs)} jobs" if planned else f"job {number}"
        log = f"{name}-{number}{'_*' if planned else ''}.log"
        console.result({"job": number, "script": str(path)}, f"{title} is queued; its output: {log}")
    if sweep:
        console.say(f"at their end, compare the members: {_summarise(sweep, limit)}")


@command()
def kubernetes(
    session: Session,
    context: typer.Context,
    image: Annotated[str, typer.Option(metavar="HOST/NAME:TAG", help="The training image, in a registry.")],
    runs_claim: Annotated[str, typer.Option(metavar="NAME", help="Volume claim for runs, which all pods can mount.")],
    dataset: Dataset = "",
    sweep: SweepFile = None,
    slots: CommandPool = 0,
    limit: Limit = LIMIT,
    workers: Annotated[int, typer.Option(min=1, help="Pods.")] = 2,
    kind: Annotated[Literal["job", "trainjob"], typer.Option(help="Indexed Job, or TrainJob of Kubeflow.")] = "job",
    data_claim: Annotated[str, typer.Option(metavar="NAME", help="Volume claim for downloaded data.")] = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the objects.")] = "",
    gpus: Annotated[int, typer.Option(min=0, max=1, help="GPUs of each pod.")] = 0,
    cpus: Cpus = 0,
    memory: Memory = "",
) -> None:
    """Print the Kubernetes objects that train with several workers, or a sweep with a member in each pod.

    They are for `kubectl apply -f -`. Options that are not listed here go to the job: see `python -m train --help`.
    """
    from toolkit import training_job
    from toolkit.launch import batch
    from train.cluster.tf_config import share

    planned = _read_sweep(session, context, sweep, dataset, limit)
    request = batch.KubernetesRequest(
        kind=kind,
        image=image,
        workers=1 if planned else workers,
        resources=batch.Resources(cpus=cpus, memory=memory, gpus=gpus),
        runs=runs_claim,
        data=data_claim,
        namespace=namespace,
    )
    batch.require_gpu_image(request, session.settings)
    if planned:
        for member in planned.members:
            batch.require_portable(member.config, member.arguments, session.settings, request)
        objects = batch.describe_sweep(planned.folder, [member.arguments for member in planned.members], request, slots)
    else:
        arguments = [dataset, *context.args]
        config = training_job.read_arguments(arguments, session.settings)
        share(config.shards, workers)
        batch.require_portable(config, arguments, session.settings, request)
        objects = batch.describe_kubernetes(config, arguments, request)
    session.console.result({"objects": objects}, batch.print_objects(objects).rstrip())
    if sweep:
        session.console.say(
            f"at their end, compare the members: {_summarise(sweep, limit)}, where the folder "
            f"{session.settings.runs} is what the claim {runs_claim} holds"
        )


@command()
def service(
    session: Session,
    run: Annotated[str, typer.Argument(help="Name of the run's folder in the claim.")],
    image: Annotated[str, typer.Option(metavar="HOST/NAME:TAG", help="The training image, in a registry.")],
    runs_claim: Annotated[str, typer.Option(metavar="NAME", help="Volume claim for runs, which all pods can mount.")],
    token_secret: Annotated[
        str, typer.Option(metavar="NAME", help="Secret with the token that requests need, as its key `token`.")
    ] = "serve-token",  # noqa: S107 - the name of a secret
    replicas: Annotated[int, typer.Option(min=1, help="Pods.")] = 2,
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the objects.")] = "",
    gpus: Annotated[int, typer.Option(min=0, max=1, help="GPUs of each pod.")] = 0,
    cpus: Cpus = 0,
    memory: Memory = "",
) -> None:
    """Print the Kubernetes objects that answer predictions of a run: a Deployment and a Service.

    They are for `kubectl apply -f -`. `kubectl create secret generic serve-token --from-file=token` makes the secret.
    """
    from toolkit.launch import batch

    request = batch.KubernetesRequest(
        kind="deployment",
        image=image,
        workers=replicas,
        resources=batch.Resources(cpus=cpus, memory=memory, gpus=gpus),
        runs=runs_claim,
        namespace=namespace,
    )
    batch.require_gpu_image(request, session.settings)
    objects = batch.describe_service(run, request, token_secret)
    session.console.result({"objects": objects}, batch.print_objects(objects).rstrip())
