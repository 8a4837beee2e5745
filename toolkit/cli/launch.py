from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import Dataset, Session, command

Cpus = Annotated[int, typer.Option(min=0, help="Cores of each worker.")]
# Slurm's name, because --memory is an option of the job.
Memory = Annotated[str, typer.Option("--mem", metavar="SIZE", help="Memory, as the scheduler writes it.")]


@command("tensorflow", "python", "cuda", "cudnn", "card", "ca_bundle", remember=True, engine="host")
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
    """Train in a Slurm job, with one worker or several.

    A job goes on after its time limit, a requeue or a lost machine. Machines share this folder. Options that are not
    listed here go to the job: see `python -m train --help`.
    """
    from toolkit.base import files
    from toolkit.jobs import choice, pipeline, training_job
    from toolkit.launch import batch
    from train.cluster.tf_config import share

    console, settings = session.console, session.settings
    arguments = (dataset, *context.args)
    config = training_job.read_arguments(arguments, settings)
    request = batch.SlurmRequest(
        nodes=nodes,
        resources=batch.Resources(cpus=cpus, memory=memory, gpus=gpus),
        partition=partition,
        account=account,
        time=time,
        port=port,
    )
    share(config.shards, request.workers)
    batch.require_ports(request)
    if not dry_run:
        batch.require_slurm()
    # An interpreter of the machines has a TensorFlow of its own; the job says if that one finds no GPU.
    gpu = False if interpreter else bool(gpus) or None
    how = choice.Runner(console=console, dry_run=dry_run)
    chosen = choice.choose(choice.Wishes(settings=settings, gpu=gpu, elsewhere=True), how)
    resolved = pipeline.choose_environment(chosen, how)
    environment = resolved.existing
    if not (environment or interpreter or dry_run):
        prepared = pipeline.environment_task(resolved)
        environment = prepared.action()
    job = training_job.plan(arguments, config, environment, gpu=bool(gpus))
    command = batch.fill_in_interpreter(resolved.engine.commands(resolved.reference, job)[-1], interpreter)
    name = f"toolkit-{config.run_dir.name}"
    script = batch.write_slurm(name, batch.start_peers(command), request)
    path = Path(settings.state).resolve() / f"{name}.sh"
    if dry_run:
        console.result({"script": script}, script.rstrip())
    else:
        files.require_writable(path.parent)
        files.write_atomically(path, script)
        number = batch.submit(path)
        log = f"{name}-{number}.log"
        console.result({"job": number, "script": str(path)}, f"job {number} is queued; its output: {log}")
