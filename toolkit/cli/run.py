from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.base.errors import UsageError
from toolkit.cli.command import ENVIRONMENT, Dataset, DryRun, Gpu, JUnit, Session, Sign, Wheel, command
from toolkit.cli.results import load_key, sign, write_page
from toolkit.versions.settings import is_contained

if TYPE_CHECKING:
    from toolkit.base.keys import Signer
    from toolkit.checks.check import Expectation
    from toolkit.smoke.runner import Report
    from toolkit.versions.settings import Settings

Image = Annotated[str | None, typer.Option(metavar="REF", help="Image to use. Default: that of these settings.")]
Capability = Annotated[str | None, typer.Option(metavar="X.Y", help="Compute capability to find.")]
Device = Annotated[Literal["auto", "cpu", "gpu"], typer.Option(help="gpu: a missing GPU is an error (exit code 12).")]
Skip = Annotated[
    list[str] | None, typer.Option(metavar="ID", help="A check to leave out, and to report as skipped; repeatable.")
]


@command(
    *ENVIRONMENT,
    remember=True,
    long=True,
)
def smoke(
    session: Session,
    image: Image = None,
    environment: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Any environment, also one of your own: the folder of a venv or of a conda environment, or a prefix "
            "such as /usr. Nothing is written there.",
        ),
    ] = None,
    expect_capability: Capability = None,
    device: Device = "auto",
    skip: Skip = None,
    wheel: Wheel = None,
    junit: JUnit = None,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Check that a TensorFlow is the one asked for, is complete, and computes correctly.

    It is that of an image or environment which the toolkit makes, by default; of an --image; or of an --environment of
    your own, where --tensorflow, --cuda and --cudnn say what is expected, and nothing is expected without them.
    """
    from toolkit.base.steps import run
    from toolkit.checks.check import Expectation
    from toolkit.jobs import choice, pipeline
    from toolkit.smoke import runner

    console, settings = session.console, session.settings
    key = load_key(sign_)
    if skip:
        runner.require_known(skip)
    named = image is not None or environment is not None

    def expect(settings: "Settings") -> Expectation:
        # In what a user names, the version is checked only if the user named one.
        named_versions = not named or settings.sources["tensorflow"] != "default"
        return Expectation(
            version=settings.tensorflow if named_versions else "",
            cuda=settings.cuda,
            cudnn=settings.cudnn,
            capability=expect_capability or "",
            device=device,
            skip=tuple(skip or ()),
        )

    if environment is not None:
        _require_alone(session, image=image, wheel=wheel, sign_=sign_)
        _check_environment(session, environment, expect(settings), junit, dry_run=dry_run)
        return
    if image is not None and (wheel or settings.engine not in {"auto", "docker"}):
        raise UsageError(f"--image names what Docker has: it goes with neither --wheel nor --engine {settings.engine}")
    if image is not None and key:
        raise UsageError(
            "--sign is for a report of what the toolkit made",
            why="a report is signed together with the record of its image, and --image may name any image",
            remedy="name the versions instead of the image",
        )
    gpu = {"gpu": True, "cpu": False}.get(device)
    wishes = choice.Wishes(settings=settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=console, dry_run=dry_run)
    if image is None:
        resolved = pipeline.choose_environment(choice.choose(wishes, how), how)
    else:
        resolved = pipeline.choose_image(choice.keep(wishes), how, image)
    prepared = pipeline.environment_task(resolved)
    checked = pipeline.smoke_task(resolved, prepared, expect(resolved.chosen.settings), force=True)
    if not run([prepared, checked], console, dry_run=dry_run):
        return
    made = prepared.result
    _conclude(session, checked.result, junit, key, (made.folder, not made.reused), (checked.result.path, True))


def _require_alone(session: Session, *, image: str | None, wheel: str | None, sign_: str) -> None:
    """Raise UsageError for options that do not go with --environment."""
    engine = session.settings.engine
    given = {"--image": image, "--wheel": wheel, "--sign": sign_, f"--engine {engine}": is_contained(engine)}
    if other := next((name for name, value in given.items() if value), ""):
        raise UsageError(
            f"--environment and {other} exclude each other",
            why="--environment names a TensorFlow that is on this machine already, and that the toolkit did not make",
            remedy="leave one of them out",
        )


def _check_environment(
    session: Session, folder: Path, expectation: "Expectation", junit: Path | None, *, dry_run: bool
) -> None:
    """Run the checks in an environment that the user names, or print their command."""
    from toolkit.base import interpreters
    from toolkit.base.steps import Plan, Step, print_plan
    from toolkit.smoke import runner

    if dry_run:
        job = runner.plan(expectation)
        commands = runner.commands_in(interpreters.find(folder), job)
        print_plan(Plan(steps=(Step(title=job.title, commands=commands),)), session.console)
        return
    _conclude(session, runner.run_in(folder, expectation, session.console), junit)


def _conclude(
    session: Session, report: "Report", junit: Path | None, key: "Signer | None" = None, *made: tuple[Path, bool]
) -> None:
    """Write the JUnit report if one is asked for, sign, and show the report. Raises CheckError if a check failed."""
    from toolkit.smoke import runner

    if junit:
        runner.write_junit(report, junit)
    sign(session, key, *made)
    session.console.result(report.to_json(), runner.render(report).rstrip())
    report.require_pass()


@command(
    *ENVIRONMENT,
    remember=True,
    long=True,
)
def train(
    session: Session,
    context: typer.Context,
    dataset: Dataset,
    wheel: Wheel = None,
    gpu: Gpu = None,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Train a DenseNet. Options that are not listed here go to the job itself: see `python -m train --help`."""
    from toolkit.base.steps import run
    from toolkit.jobs import choice, pipeline, training_job

    console, settings = session.console, session.settings
    arguments = [dataset, *context.args]
    config, key = training_job.read_arguments(arguments, settings), load_key(sign_)
    wishes = choice.Wishes(settings=settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=console, dry_run=dry_run)
    resolved = pipeline.choose_environment(choice.choose(wishes, how), how)
    prepared = pipeline.environment_task(resolved)
    trained = pipeline.train_task(resolved, prepared, arguments, config)
    if run([prepared, trained], console, dry_run=dry_run):
        sign(session, key, (prepared.result.folder, not prepared.result.reused), (config.run_dir, False))
        write_page(session, config.run_dir)
        console.result(trained.result, training_job.describe(config, trained.result))
