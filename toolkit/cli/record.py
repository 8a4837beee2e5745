from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import DataDir, DryRun, Gpu, Session, SourcePath, Trust, Wheel, command


@command()
def sbom(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(help="An environment's or image's folder below the state folder, or an image as NAME:TAG."),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write it there, and not to standard output.")
    ] = None,
) -> None:
    """Print the bill of materials of an environment or an image, in CycloneDX 1.6.

    That of an environment has the packages that pip installed, with their hashes. That of an image has the base image,
    the Debian packages as the image lists them, the Python packages of its locked set, and the wheel. No program of the
    image runs. The bill of a wheel is sbom.cdx.json in its folder, and that of an image with such a wheel refers to it.
    """
    import json

    from toolkit import files, record
    from toolkit.record import bill

    text = bill.write(record.find(target), Path(session.settings.state))
    if out:
        files.write_atomically(out, text + "\n")
    value = json.loads(text)
    session.console.result(value, f"{out}: {len(value.get('components', []))} components" if out else text)


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle", long=True)
def reproduce(
    session: Session,
    run: Annotated[Path, typer.Argument(help="A finished run's folder, or the manifest.json in it.")],
    data_dir: DataDir = "",
    source: SourcePath = "",
    wheel: Wheel = None,
    gpu: Gpu = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the second run although it is equal.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Run a finished run again and compare: level R4 where its weights are the same to the bit.

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
    repeated = reproduction.resolve(run, request, data_dir=data_dir, source=source, console=console)
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
            remedy=f"`toolkit compare-runs {record.folder} {outcome.kept}` finds the first bit, with audit data",
        )


@command("ca_bundle", remember=True)
def report(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="What `toolkit verify` takes, or the folder of a sweep; several runs are shown side by side.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; by default NAME.html in this folder.")
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            metavar="DIR",
            help="For a run: also show what `evaluate --out` or `predict --explain` wrote there; repeatable.",
        ),
    ] = None,
    trust: Trust = None,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Show images of the data.")] = True,
) -> None:
    """Write one HTML file about a run, a sweep, a wheel, an environment, an image or a smoke report.

    It has numbers, curves, confusions and images, and the chain behind them as `toolkit verify` finds it, with every
    record. It asks no other host for anything and opens anywhere. A link that does not hold is shown as `fail`; the
    exit code is 0 all the same, because this is for reading, and `toolkit verify` is for checking. With --trust,
    signatures are checked too.
    """
    from toolkit import digest, files, report, signing
    from toolkit.report.chain import PageContext

    context = PageContext(state=Path(session.settings.state), policy=signing.read_policy(trust or ()))
    described, text = report.compose(targets, context, beside or (), pictures=pictures)
    content = text.encode()
    place = out or Path(f"{report.name_page(targets)}.html")
    files.write_atomically(place, content)
    states = {link.name: link.state for link in described.chain.links} if described.chain else {}
    value = {"page": str(place), "sha256": digest.digest_bytes(content).removeprefix("sha256:"), "bytes": len(content)}
    failed = [name for name, state in states.items() if state == "fail"]
    warning = f"; does not hold: {', '.join(failed)}" if failed else ""
    session.console.result(value | {"links": states}, f"{place}: {len(content):,} bytes{warning}")


@command("ca_bundle", remember=True)
def show(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET...", help="What `toolkit report` takes; several runs are shown side by side."),
    ],
    trust: Trust = None,
) -> None:
    """Print what the page of `toolkit report` says: numbers, tables, and the chain as `toolkit verify` finds it."""
    import shutil
    from dataclasses import asdict

    from toolkit import report, signing
    from toolkit.report import text
    from toolkit.report.chain import PageContext

    context = PageContext(state=Path(session.settings.state), policy=signing.read_policy(trust or ()))
    page = report.describe(targets, context, pictures=False)
    links = page.chain.links if page.chain else ()
    value = {
        "kind": page.kind,
        "title": page.title,
        "numbers": [asdict(each) for each in page.numbers],
        "links": [{"name": each.name, "state": each.state, "digest": each.digest} for each in links],
    }
    session.console.result(value, text.render(page, width=shutil.get_terminal_size((100, 24)).columns))
