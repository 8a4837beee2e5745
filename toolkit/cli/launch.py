import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base.errors import UsageError
from toolkit.cli.command import Dataset, Session, Wheel, command
from toolkit.cli.help import read_scheduler_options
from toolkit.versions.set import VERSIONS

if TYPE_CHECKING:
    from toolkit.base.console import Console
    from toolkit.launch.batch import SlurmRequest


@command(*VERSIONS, "card", "ca_bundle", remember=True, engine="host")
def slurm(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, with a worker each, or one for each GPU.")] = 2,
    gpus: Annotated[str, typer.Option(metavar="[TYPE:]N", help="GPUs of each machine, each with a worker.")] = "0",
    cpus: Annotated[int, typer.Option(min=0, help="Cores of each worker.")] = 0,
    driver: Annotated[
        str, typer.Option(metavar="VERSION", help="Driver of the machines; a free one is asked without it.")
    ] = "",
    wheel: Wheel = None,
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port of worker 0; others use those after.")] = 2222,
    interpreter: Annotated[
        str, typer.Option(metavar="FILE", help="Python on the machines, with TensorFlow, in place of an environment.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script; submit nothing.")] = False,
) -> None:
    """Train in a Slurm job, with one worker or several.

    A job goes on after its time limit, a requeue or a lost machine. Machines share this folder. Options that are not
    listed here go to the job: see `python -m train --help`. What stands after `--` goes to sbatch, such as
    `-- --partition gpu --time 4:00:00 --mem 32G`.
    """
    from toolkit.base import files
    from toolkit.jobs import choice, pipeline, training_job
    from toolkit.launch import batch
    from train.cluster.tf_config import share

    console, settings = session.console, session.settings
    arguments = (dataset, *context.args)
    gpu_type, count = batch.read_gpus(gpus)
    request = batch.SlurmRequest(
        nodes=nodes, cpus=cpus, gpus=count, gpu_type=gpu_type, options=read_scheduler_options(context), port=port
    )
    batch.require_places(request, context.args)
    config = training_job.read_arguments(arguments, settings)
    given = str(context.get_parameter_source("nodes")).endswith("COMMANDLINE")
    share(config.shards, request.workers, note="" if given else f" (--nodes is {nodes} unless you give it)")
    batch.require_ports(request)
    _check_slurm(request, console, dry_run=dry_run)
    # An interpreter of the machines has a TensorFlow of its own; the job says if that one finds no GPU.
    gpu = False if interpreter else bool(count) or None
    if gpu and settings.card == "auto":
        settings = replace(settings, card=_name_card(request))
    if gpu and settings.card not in {"auto", "none"} and not (driver or dry_run):
        driver = batch.ask_driver(request)
        unknown = "no node says it now: give --driver, which nvidia-smi names there"
        console.heading("driver", f"{driver}, as a node says; --driver spares the question" if driver else unknown)
    how = choice.Manner(console=console, dry_run=dry_run)
    wishes = choice.Wishes(settings=settings, wheel=wheel, gpu=gpu, elsewhere=True, driver=driver)
    if gpu and settings.card == "auto" and wishes.leaves_versions:
        if request.gpu_type:
            raise UsageError(
                f"`{request.gpu_type}` is no card of the toolkit's table",
                why="which TensorFlow is taken depends on the card",
                remedy="give --card too, with the name that nvidia-smi has for it on a node, such as --card H100",
            )
        raise UsageError(
            "which GPUs the nodes have is not known",
            why="Slurm names no type of theirs here, and which TensorFlow is taken depends on the card",
            remedy="give --card with the name that nvidia-smi has for it on a node, such as --card A100",
        )
    chosen = choice.choose(wishes, how)
    resolved = pipeline.choose_environment(chosen, how)
    environment = resolved.existing
    if not (environment or interpreter or dry_run):
        prepared = pipeline.environment_task(resolved)
        environment = prepared.action()
    job = training_job.plan(arguments, config, environment, gpu=bool(count))
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


def _check_slurm(request: "SlurmRequest", console: "Console", *, dry_run: bool) -> None:
    """Say what is not checked, or hardly useful. Raises an error for what Slurm could not run, or not go on with."""
    from toolkit.launch import batch

    batch.require_time(request)
    if not dry_run:
        batch.require_slurm()
    elif shutil.which("sbatch") is None:
        console.heading("slurm", "not on this machine: the partition, its limit and its GPUs are not checked")
    if 0 < request.seconds < batch.SHORTEST_SECONDS:
        saves = f"it saves and goes back to the queue at most {batch.SAVE_SECONDS} seconds before the limit"
        console.heading("time", f"{saves}; with less than 10 minutes little is left to train")


def _name_card(request: "SlurmRequest") -> str:
    """Return the card of the job as far as the names of GPUs in Slurm tell it; or auto, which leaves it open."""
    from toolkit.doctor.cards import find_card
    from toolkit.launch import batch

    types = [request.gpu_type] if request.gpu_type else []
    if not types and shutil.which("sinfo"):
        types = [*batch.find_gpu_types(request.partition)]
    if len(types) > 1:
        raise UsageError(
            f"the nodes have GPUs of {len(types)} types: {', '.join(types)}",
            why="which TensorFlow is taken depends on the card",
            remedy=f"give --gpus {types[0]}:{request.gpus}, or -- --partition NAME with nodes of one type",
        )
    for name in types:
        with suppress(UsageError):
            find_card(name)
            return name
    return "auto"
