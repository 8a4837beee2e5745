from typing import Any

import typer
import typer.core

from toolkit import __version__
from toolkit.cli import build, chain, graft, launch, machine, pins, record, run, signing, use, verify


class PassingCommand(typer.core.TyperCommand):
    """A command that passes options on to the training job."""

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return what the words may go on with: names of the job's options too, or values of the last one."""
        from train import cli  # only a completion needs it

        job = typer.main.get_command(cli.app)
        for option in job.params:
            if ctx.args and ctx.args[-1] in option.opts and not getattr(option, "is_flag", False):
                return option.shell_complete(ctx, incomplete)
        own = super().shell_complete(ctx, incomplete)
        known = {each.value for each in own}
        return [*own, *(each for each in job.shell_complete(ctx, incomplete) if each.value not in known)]


app = typer.Typer(
    name="toolkit",
    help="TensorFlow for one exact GPU stack: build it, prove it, train with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Plain help, because loading rich would take longer than everything else together.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# All arguments and options after the data set belong to the training job.
PASS_ON: dict[str, Any] = {
    "cls": PassingCommand,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}

app.command("up", **PASS_ON, short_help="The whole chain: wheel, image, smoke, training.")(chain.up)
app.command("build-wheel", short_help="Build TensorFlow from source.")(build.build_wheel)
app.command("graft", short_help="Put machine code for a later GPU into a published wheel.")(graft.graft)
app.command("collect", short_help="Collect what a wheel is built from, to build without a network.")(build.collect)
app.command("push", short_help="Push a wheel and its records to an OCI registry.")(build.push)
app.command("build-image", short_help="Build the runtime or the training image.")(build.build_image)
app.command("smoke", short_help="Check the TensorFlow of an image or of the host.")(run.smoke)
app.command("train", **PASS_ON, short_help="Train a DenseNet.")(run.train)
app.command("sweep", short_help="Train a family of runs side by side, and compare them.")(run.sweep)
workers = typer.Typer(
    no_args_is_help=True,
    help="Train with several workers: here, by Slurm, or in Kubernetes. The last two also train sweeps. "
    "Kubernetes can serve a run, too.",
)
workers.command("local", **PASS_ON, short_help="Containers or processes of this machine.")(launch.local)
workers.command("slurm", **PASS_ON, short_help="A job of a Slurm cluster.")(launch.slurm)
workers.command("kubernetes", **PASS_ON, short_help="A Job of Kubernetes, or a TrainJob of Kubeflow.")(
    launch.kubernetes
)
workers.command("service", short_help="A prediction server of Kubernetes, for a run.")(launch.service)
app.add_typer(workers, name="launch", short_help="Train with several workers: here, by Slurm, or in Kubernetes.")
app.command("predict", short_help="Classify images by the network of a run.")(use.predict)
app.command("serve", short_help="Serve the predictions of a run by HTTP.")(use.serve)
app.command("evaluate", short_help="Measure the network of a run on test images.")(use.evaluate)
app.command("export", short_help="Write the network of a run for other programs.")(use.export)
app.command("rehearse", **PASS_ON, short_help="The first steps of training on an emulated GPU.")(run.rehearse)
app.command("doctor", short_help="What this machine can do, with remedies.")(machine.doctor)
app.command("advise", short_help="Which TensorFlow runs on a card: published, grafted, or built.")(machine.advise)
app.command("matrix", short_help="What works with what, and the sources.")(pins.matrix)
app.command("lock", short_help="Freeze every pin of the chain, or check them.")(pins.lock)
app.command("schema", short_help="JSON schemas of the files that users write or read.")(pins.schema)
app.command("verify", short_help="Check a wheel, an image or a run, and the chain behind it.")(verify.verify)
app.command("sbom", short_help="The bill of materials of an environment or an image.")(record.sbom)
app.command("show", short_help="What a report says, as text.")(record.show)
app.command("report", short_help="One HTML page about a run, a sweep, a wheel, an image or a report.")(record.report)
app.command("sign", short_help="Sign a wheel, an image, a smoke report or a run.")(signing.sign)
keys = typer.Typer(no_args_is_help=True, help="Keys for signatures.", rich_markup_mode=None)
keys.command("new", short_help="Make a key pair.")(signing.make_key)
app.add_typer(keys, name="key")
app.command("reproduce", short_help="Run a finished run again, and compare.")(record.reproduce)
app.command("compare-runs", short_help="Find the first step, tensor and element where two runs differ.")(
    run.compare_runs
)
app.command("ls", short_help="List what the toolkit made here: wheels, runs, environments, images.")(machine.ls)
app.command("clean", short_help="Remove what the toolkit made.")(machine.clean)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolkit {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    """TensorFlow for one exact GPU stack: build it, prove it, train with it."""
