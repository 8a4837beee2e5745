import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.command import ENVIRONMENT, DryRun, Gpu, Session, Wheel, command
from train.config.configuration import FORMATS, OPTIONS
from train.config.presets import require_choice
from train.service import options

if TYPE_CHECKING:
    from toolkit.engine import Job

Run = Annotated[Path, typer.Argument(help="Folder of a run.")]
Images = Annotated[list[str], typer.Argument(help="Image files, folders of images, or - for a list on standard input.")]
ReportBroken = Annotated[Path | None, typer.Option(metavar="FILE", help=OPTIONS["report_broken"].help)]
Top = Annotated[int, typer.Option(min=1, help="Classes shown for each image.")]


@command(*ENVIRONMENT, remember=True)
def predict(
    session: Session,
    run: Run,
    image: Images,
    top: Top = 5,
    explain: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw which parts of an image decide its best class (Grad-CAM).")
    ] = None,
    report_broken: ReportBroken = None,
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Classify images by the network of a run.

    An image that cannot be read is named, the others are classified, and the exit code is 9.
    """
    from toolkit.jobs import inference
    from train.system.files import read_list

    listed = read_list(sys.stdin) if "-" in image else ()
    outputs = inference.Outputs(explain=explain, report_broken=report_broken)
    job = inference.plan_prediction(run, image, listed, ["--top", str(top)], outputs)
    _use(session, job, wheel=wheel, gpu=gpu, dry_run=dry_run)


@command(
    *ENVIRONMENT,
    remember=True,
    long=True,
)
def evaluate(
    session: Session,
    run: Run,
    dataset: Annotated[str, typer.Argument(help="Data set with test images; by default that of the run.")] = "",
    data_dir: Annotated[str, typer.Option(metavar="DIR", help="Local copy of the data set.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the results and their picture.")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help=OPTIONS["skip_broken"].help)] = False,
    report_broken: ReportBroken = None,
    strict_data: Annotated[bool, typer.Option("--strict-data", help=OPTIONS["strict_data"].help)] = False,
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Measure accuracy, loss, precision, recall and calibration of a run's network on test images.

    Of data without a test split all images are measured, unless the network was trained on it.
    """
    from toolkit.jobs import inference
    from train.record.reader import choose_data

    files = {"skip_broken": skip_broken, "strict_data": strict_data}
    config = choose_data(run, dataset, data_dir, session.settings.data, files)
    words = [f"--{name.replace('_', '-')}" for name, given in files.items() if given]
    outputs = inference.Outputs(out=out, report_broken=report_broken)
    job = inference.plan_evaluation(run, dataset, config, outputs, words)
    _use(session, job, wheel=wheel, gpu=gpu, dry_run=dry_run)


@command(*ENVIRONMENT, remember=True)
def export(
    session: Session,
    run: Run,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="FORMAT", help=f"{', '.join(FORMATS)}; repeatable; by default all but onnx."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; by default export in the run's.")
    ] = None,
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Export the network of a run for other programs, and compare each file with it on real photographs."""
    from toolkit.jobs import inference

    for name in formats or ():
        require_choice("format", name, FORMATS)
    job = inference.plan_export(run, out or run / "export", formats or ())
    _use(session, job, wheel=wheel, gpu=gpu, dry_run=dry_run)


@command(*ENVIRONMENT, remember=True)
def serve(
    session: Session,
    run: Run,
    host: options.Host = options.HOST,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = options.PORT,
    token_file: options.TokenFile = None,
    batch: options.Batch = options.BATCH,
    wait: options.Wait = options.WAIT,
    queue: options.Queue = options.QUEUE,
    max_mib: options.MaxMib = options.MAX_MIB,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    timeout: options.Timeout = options.TIMEOUT,
    allow_host: options.AllowHost = None,
    log_format: options.LogFormat = "text",
    wheel: Wheel = None,
    gpu: Gpu = None,
    dry_run: DryRun = False,
) -> None:
    """Serve the predictions of a run by HTTP, with a page to try it, until Ctrl-C or SIGTERM.

    The answers are those of `predict` to the bit. The server opens no connection. Beyond loopback it needs a token.
    """
    from toolkit.base import steps
    from toolkit.base.steps import Task
    from toolkit.jobs import choice, inference, pipeline
    from train.service.options import read_hosts

    console = session.console
    read_hosts(allow_host or ())  # the job reads them too, after the environment is made
    if token_file and token_file.is_file() and token_file.stat().st_mode & 0o077:
        console.heading("token", f"others can read {token_file}: chmod 600 {token_file}")
    limits = {"batch": batch, "wait": wait, "queue": queue, "max-mib": max_mib, "max-pixels": max_pixels}
    values = [*limits.items(), ("log-format", log_format), *(("allow-host", name) for name in allow_host or ())]
    words = tuple(word for name, value in values for word in (f"--{name}", str(value)))
    serving = inference.Serving(host=host, port=port, token_file=token_file, seconds=timeout, options=words)
    wishes = choice.Wishes(settings=session.settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=console, dry_run=dry_run)
    resolved = pipeline.choose_environment(choice.choose(wishes, how), how)
    network = resolved.engine.plan_network()
    job = replace(inference.plan_serving(run, serving, network), gpu=resolved.gpu)
    prepared = pipeline.environment_task(resolved)
    step = resolved.step(job)
    step = replace(step, commands=(*network.make, *step.commands, *network.remove))
    served = Task(step, lambda: inference.serve(resolved.engine, prepared.result, job))
    steps.run([prepared, served], console, dry_run=dry_run)


def _use(session: Session, job: "Job", *, wheel: str | None, gpu: bool | None, dry_run: bool) -> None:
    from toolkit.base.errors import JobError
    from toolkit.base.steps import Task, run
    from toolkit.jobs import choice, inference, pipeline

    console = session.console
    wishes = choice.Wishes(settings=session.settings, wheel=wheel, gpu=gpu)
    how = choice.Manner(console=console, dry_run=dry_run)
    resolved = pipeline.choose_environment(choice.choose(wishes, how), how)
    prepared = pipeline.environment_task(resolved)
    argv = (*job.argv, "--json") if console.json else job.argv
    job = replace(job, gpu=resolved.gpu, argv=argv)

    def use() -> dict[str, Any]:
        return inference.run(resolved.engine, prepared.result, job, json_=console.json)

    used = Task(resolved.step(job), use)
    if run([prepared, used], console, dry_run=dry_run) and console.json:
        code = used.result.pop("exit_code", 0)
        console.result(used.result, "")
        if code:
            raise JobError(job.title, code)
