"""``toolkit rehearse``: the training job on an emulated GPU."""

from typing import Annotated

import typer

from toolkit.cli import options
from toolkit.cli.session import Session, command

Card = Annotated[str, typer.Option("--gpu", metavar="NAME", help="t4, p100, v100, a100, l4, rtx4090, rtx5090 or h100.")]


@command("tensorflow", "engine", "ca_bundle")
def rehearse(
    session: Session,
    context: typer.Context,
    dataset: options.Dataset,
    gpu: Card = "t4",
    dry_run: options.DryRun = False,
) -> None:
    """Run a training job's first steps on an emulated GPU, and report what a real one would refuse or have to do.

    Images are random bytes of the data set's shape; `synthetic` with --shape 224x224x3 has any shape. Options that are
    not listed here go to the job, or to the rehearsal: see `python -m train.rehearsal --help`.
    """
    from toolkit import rehearsal

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args, "--gpu", gpu]
    recipe, engine = rehearsal.choose_recipe(settings), rehearsal.make_engine(settings)
    planned = engine.plan(recipe)
    job = rehearsal.plan(arguments, planned.reference)
    if dry_run:
        options.print_commands(console, [*planned.commands, *engine.commands(planned.reference, job)])
        return
    environment = engine.prepare(planned, console)
    console.heading("venv", f"{'reused' if environment.reused else 'made'} {environment.reference}")
    rehearsal.run(engine, environment, arguments, console)
