import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import LIMIT, Dataset, Limit, Session, command

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
