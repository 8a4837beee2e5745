"""``toolkit reproduce``: a finished run, run again from its manifest, and compared."""

from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import DryRun, Gpu, Session, Wheel, command


@command("tensorflow", "cuda", "cudnn", "engine", "base_image", "ca_bundle")
def reproduce(
    session: Session,
    run: Annotated[Path, typer.Argument(help="A finished run's folder, or the manifest.json in it.")],
    data_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Where the local copy of the data is now, for a run that read one.")
    ] = "",
    wheel: Wheel = None,
    gpu: Gpu = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the second run although it is equal.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Run a finished run again and compare: rung R4 where its weights are the same to the bit.

    It runs in the environment or image of the first run if that is still here; else in one that these options make
    from the same wheel or locked set. Nothing is run (exit code 4) where processor or GPU, TensorFlow, threads, batch
    size or the data's digest differ, because the bits depend on them. Exit code 7: the weights or the recorded numbers
    differ; the second run is then kept, and the first difference is printed. An interrupted run is repeated without a
    break, which gives the same bits. A run that was resumed in another environment is refused.
    """
    import shlex
    from dataclasses import asdict

    from toolkit import findings, pipeline
    from toolkit.errors import CheckError
    from toolkit.record import comparison, reproduction

    console = session.console
    request = pipeline.Request(settings=session.settings, wheel=wheel, gpu=gpu, dry_run=dry_run)
    repeated = reproduction.resolve(run, request, data_dir=data_dir, console=console)
    record = repeated.record
    if not dry_run:
        console.heading("run", shlex.join(["toolkit", "train", *repeated.arguments]))
    outcome = reproduction.repeat(repeated, console, keep=keep, dry_run=dry_run)
    if outcome is None:
        return
    console.say(findings.render(outcome.links).rstrip())
    value = {
        "run": str(record.folder),
        "arguments": list(repeated.arguments),
        "rung": outcome.rung,
        "links": [comparison.describe(link) for link in outcome.links],
        "comparison": asdict(outcome.comparison),
        "kept": str(outcome.kept) if outcome.kept else None,
    }
    console.result(value, reproduction.summarize(record, outcome))
    if not outcome.comparison.holds:
        raise CheckError(
            "the run does not reproduce",
            why=reproduction.describe_difference(record, outcome),
            remedy=f"compare the curves: python -m train.compare {record.folder} {outcome.kept}",
        )
