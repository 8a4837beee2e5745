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

    It runs where the run was made, if that environment or image is still here; else in one that is made by these
    options, of the same wheel or locked set. What decides the bits must be the same, or nothing is run (exit code 4):
    processor or GPU, TensorFlow, threads, batch size and the data's digest. Exit code 7: the weights or the recorded
    numbers are others; the second run is then kept, and where the two part is said. A run that was interrupted is
    repeated without a break, which gives the same bits; one that went on in another environment cannot be repeated,
    and is refused.
    """
    import shlex
    from dataclasses import asdict

    from toolkit import findings
    from toolkit.errors import CheckError
    from toolkit.plan import print_plan
    from toolkit.record import comparison, reproduction

    console, settings = session.console, session.settings
    attempt = reproduction.plan(
        run, settings, wheel=wheel, gpu=gpu, data_dir=data_dir, console=console, dry_run=dry_run
    )
    if dry_run:
        print_plan(attempt.plan(), console)
        return
    console.heading("run", shlex.join(["toolkit", "train", *attempt.arguments]))
    outcome = reproduction.repeat(attempt, keep=keep, console=console)
    console.say(findings.render(outcome.links).rstrip())
    value = {
        "run": str(attempt.record.folder),
        "arguments": list(attempt.arguments),
        "rung": outcome.rung,
        "links": [comparison.describe(link) for link in outcome.links],
        "comparison": asdict(outcome.comparison),
        "kept": str(outcome.kept) if outcome.kept else None,
    }
    console.result(value, reproduction.summarize(attempt, outcome))
    if not outcome.comparison.holds:
        raise CheckError(
            "the run does not reproduce",
            why=reproduction.describe_difference(attempt, outcome),
            remedy=f"compare the curves: python -m train.compare {attempt.record.folder} {outcome.kept}",
        )
