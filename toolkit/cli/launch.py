from pathlib import Path
from typing import Annotated, Literal

import typer

from toolkit.cli.command import Dataset, DryRun, Gpu, Session, Wheel, command

Cpus = Annotated[int, typer.Option(min=0, help="Cores of each worker.")]
# Slurm's name, because --memory is an option of the job.
Memory = Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory, as the scheduler writes it.")]


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", remember=True)
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
    from toolkit import pipeline, training
    from toolkit.launch.local import plan_task
    from toolkit.plan import run
    from train.cluster import share

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    share(config.shards, workers)
    request = pipeline.Request(settings=settings, wheel=wheel, gpu=gpu, dry_run=dry_run)
    resolved = pipeline.resolve(request, console)
    prepared = pipeline.environment_task(resolved, console)
    trained = plan_task(resolved, prepared, arguments, config, console, workers=workers)
    if run([prepared, trained], console, dry_run=dry_run):
        console.result(trained.result, training.describe(config, trained.result))
    elif resolved.engine.name != "docker":  # whose commands but the last do not wait for the end of a worker
        console.say(f"each of the last {workers} commands needs a shell of its own")


@command("tensorflow", "python", "cuda", "cudnn", "ca_bundle", remember=True, engine="host")
def slurm(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
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
    """Train with several workers in a Slurm job that goes on after its time limit, a requeue or a lost machine.

    Machines share this folder. Options that are not listed here go to the job: see `python -m train --help`.
    """
    from toolkit import files, pipeline, training
    from toolkit.launch import batch
    from train.cluster import share

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, settings)
    resources = batch.Resources(cpus=cpus, memory=memory, gpus=gpus)
    request = batch.SlurmRequest(
        nodes=nodes, resources=resources, partition=partition, account=account, time=time, port=port
    )
    share(config.shards, request.workers)
    batch.require_ports(request)
    if not dry_run:
        batch.require_slurm()
    resolved = pipeline.resolve(pipeline.Request(settings=settings, gpu=bool(gpus), dry_run=dry_run), console)
    environment = resolved.existing
    if not (environment or interpreter or dry_run):
        prepared = pipeline.environment_task(resolved, console)
        environment = prepared.action()
    job = batch.start_peers(training.plan(arguments, config, environment, gpu=bool(gpus)), "slurm")
    command_line = batch.place(resolved.engine.commands(resolved.reference, job)[-1], interpreter)
    name = f"toolkit-{config.run_dir.name}"
    script = batch.write_slurm(name, command_line, request)
    path = Path(settings.state).resolve() / f"{name}.sh"
    if dry_run:
        console.result({"script": script}, script.rstrip())
        return
    files.require_writable(path.parent)
    files.write_atomically(path, script)
    number = batch.submit(path)
    console.result({"job": number, "script": str(path)}, f"job {number} is queued; its output: {name}-{number}.log")


@command()
def kubernetes(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    image: Annotated[str, typer.Option(metavar="HOST/NAME:TAG", help="The training image, in a registry.")],
    runs_claim: Annotated[str, typer.Option(metavar="NAME", help="Volume claim for runs, which all pods can mount.")],
    workers: Annotated[int, typer.Option(min=1, help="Pods.")] = 2,
    kind: Annotated[Literal["job", "trainjob"], typer.Option(help="Indexed Job, or TrainJob of Kubeflow.")] = "job",
    data_claim: Annotated[str, typer.Option(metavar="NAME", help="Volume claim for downloaded data.")] = "",
    namespace: Annotated[str, typer.Option(metavar="NAME", help="Namespace of the objects.")] = "",
    gpus: Annotated[int, typer.Option(min=0, max=1, help="GPUs of each pod.")] = 0,
    cpus: Cpus = 0,
    memory: Memory = "",
) -> None:
    """Print the Kubernetes objects that train with several workers, for `kubectl apply -f -`.

    Options that are not listed here go to the job: see `python -m train --help`.
    """
    from toolkit import training
    from toolkit.launch import batch
    from train.cluster import share

    arguments = [dataset, *context.args]
    config = training.read_arguments(arguments, session.settings)
    request = batch.KubernetesRequest(
        kind=kind,
        image=image,
        workers=workers,
        resources=batch.Resources(cpus=cpus, memory=memory, gpus=gpus),
        runs=runs_claim,
        data=data_claim,
        namespace=namespace,
    )
    share(config.shards, workers)
    batch.require_portable(config, request)
    objects = batch.describe_kubernetes(config, arguments, request)
    session.console.result({"objects": objects}, batch.print_objects(objects).rstrip())
