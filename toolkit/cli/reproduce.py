import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from toolkit.base.errors import CheckError, UsageError
from toolkit.cli.command import Accept, DataDir, DryRun, Gpu, Session, SourcePath, Wheel, command
from toolkit.cli.results import read_level
from toolkit.versions.set import VERSIONS
from toolkit.wheel.build_options import BuildOptions

if TYPE_CHECKING:
    from toolkit import records
    from toolkit.jobs.reproduction import Reproduction

_ENVIRONMENT: Final = (*VERSIONS, "engine", "archive", "base_image")
_OF_RUN: Final = frozenset({*_ENVIRONMENT, "data_dir", "source", "wheel", "gpu"})
_TAKEN: Final = {
    "a wheel": frozenset({"accept", "bazelrc"}),
    "a run": _OF_RUN | {"keep", "dry_run"},
}
"""The options that each way takes. What none of them names is for all."""


@command(*_ENVIRONMENT, "ca_bundle", build=("bazelrc",), long=True)
def reproduce(
    session: Session,
    context: typer.Context,
    *,
    target: Annotated[str, typer.Argument(help="A wheel's folder (dist/NAME), or a finished run's (runs/NAME).")],
    accept: Accept = "R2",
    options: BuildOptions,
    data_dir: DataDir = "",
    source: SourcePath = "",
    wheel: Wheel = None,
    gpu: Gpu = None,
    keep: Annotated[bool, typer.Option("--keep", help="For a run: keep the second run although it is equal.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Build a wheel again, or train a run again, and compare: what was made is what its inputs give.

    A wheel is verified, built again without any cache or remote executor, and compared file by file. Exit code 7: the
    two wheels have a difference that is not harmless; --accept R1 lets contents differ.

    A run is trained again: level R4 where its weights are the same to the bit. It runs in the environment or image of
    the first run if that is still here; else in one that these options make from the same wheel or locked set. Nothing
    is run (exit code 4) where processor or GPU, TensorFlow, threads, batch size or the data's digest differ, because
    the bits depend on them. Exit code 7: the weights or the recorded numbers differ; the second run is then kept, and
    the first difference is printed. An interrupted run is repeated without a break, which gives the same bits. A run
    that was resumed in another environment is refused.
    """
    from toolkit import records

    artifact = records.find(target, Path(session.settings.state))
    if isinstance(artifact, records.Wheel):
        _require_taken(context, "a wheel")
        _build_again(session, artifact, accept=accept, bazelrc=options.bazelrc)
        return
    if not isinstance(artifact, records.Run):
        raise UsageError(
            f"`toolkit reproduce` is for a wheel or a run, and {target} is of the kind {artifact.kind}",
            remedy=f"`toolkit verify {target}` compares it with its record",
        )
    _require_taken(context, "a run")

    from toolkit.jobs import choice, reproduction

    wishes = choice.Wishes(settings=session.settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=session.console, dry_run=dry_run)
    repeated = reproduction.plan(artifact.folder, wishes, how, data_dir=data_dir, source=source)
    _train_again(session, repeated, keep=keep, dry_run=dry_run)


def _require_taken(context: typer.Context, way: str) -> None:
    """Raise UsageError if an option was given that is for another way to reproduce."""
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        ways = [other for other, taken in _TAKEN.items() if name in taken]
        if given and ways and way not in ways:
            raise UsageError(
                f"{parameter.opts[0]} is not for {way}, but for {' and for '.join(ways)}",
                remedy="leave it out; `toolkit reproduce --help` says what each option does",
            )


def _build_again(session: Session, wheel: "records.Wheel", *, accept: str, bazelrc: str) -> None:
    """Build a wheel a second time, and report each difference.

    Raises CheckError if it does not match its record, or if the second build is below the accepted level.
    """
    from toolkit.base import findings
    from toolkit.records import rebuild

    console, level = session.console, read_level(accept)
    verified = wheel.check()
    console.say(findings.render(verified).rstrip())
    findings.require(verified, remedy="build the wheel again with `toolkit build-wheel`")
    console.heading("trust", wheel.describe_trust())
    comparison = rebuild.rebuild(wheel, session.settings, bazelrc=bazelrc, console=console)
    for difference in comparison.differences:
        console.heading(difference.kind, f"{difference.name or 'the wheel'}: {difference.detail}")
    value = {
        "kind": wheel.kind,
        "folder": str(wheel.folder),
        "findings": [item.as_dict() for item in verified],
        "level": comparison.level,
        "differences": [asdict(difference) for difference in comparison.differences],
        "inputs": comparison.inputs,
        "seconds": comparison.seconds,
    }
    console.result(value, f"{wheel.folder}: built again in {comparison.seconds:.0f} s: {comparison.summary}")
    rebuild.require_level(comparison, level)


def _train_again(session: Session, repeated: "Reproduction", *, keep: bool, dry_run: bool) -> None:
    """Train a whole run again, and report for each link of its chain whether it is the same.

    Raises CheckError if weights or recorded numbers differ.
    """
    from toolkit.base import findings
    from toolkit.jobs import reproduction
    from toolkit.records import comparison

    console, record = session.console, repeated.record
    if not dry_run:
        console.heading("run", shlex.join(["toolkit", "train", *repeated.arguments]))
    outcome = reproduction.repeat(repeated, console, keep=keep, dry_run=dry_run)
    if outcome is None:
        return
    console.say(findings.render(outcome.links).rstrip())
    value: dict[str, Any] = {
        "run": str(record.folder),
        "arguments": list(repeated.arguments),
        "level": outcome.level,
        "links": [comparison.describe(link) for link in outcome.links],
        "comparison": asdict(outcome.comparison),
        "kept": str(outcome.kept) if outcome.kept else None,
    }
    console.result(value, reproduction.summarize(record, outcome))
    if not outcome.comparison.holds:
        raise CheckError(
            "the run does not reproduce",
            why=reproduction.describe_difference(record, outcome),
            remedy=f"compare both runs: `toolkit report {record.folder} {outcome.kept}`",
        )
