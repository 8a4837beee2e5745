from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import (
    Bazelrc,
    DataDir,
    DryRun,
    Gpu,
    ResourceUri,
    Session,
    SourcePath,
    SummaryFile,
    Trust,
    Wheel,
    command,
    load_key,
)
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.console import Console
    from toolkit.keys import Signer
    from toolkit.record import Target
    from toolkit.record.rebuild import Level
    from toolkit.record.verification import Verification


@command("ca_bundle", long=True)
def verify(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="A wheel's folder (dist/NAME), a run's (runs/NAME), an environment's or image's below the state "
            "folder, a smoke report in it, or an image as NAME:TAG.",
        ),
    ],
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail too where a link of the chain is not on this machine.")
    ] = False,
    trust: Trust = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Build a wheel again without any cache, and explain each difference.")
    ] = False,
    accept: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="With --rebuild, or for statements of second builds with --trust: the lowest level that passes. R3: "
            "identical wheels. R2: RECORD and time stamps may differ. R1: contents may differ, code too.",
        ),
    ] = "R2",
    bazelrc: Bazelrc = "",
    sign_: Annotated[
        str,
        typer.Option(
            "--sign",
            metavar="KEY",
            help="Sign the --summary, and with --rebuild, beside the wheel, what the second build gave.",
        ),
    ] = "",
    replay: Annotated[
        int,
        typer.Option(
            metavar="K",
            min=0,
            help="For a run of --audit-every: also train K randomly chosen stretches again, and compare all bits.",
        ),
    ] = 0,
    seed: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="With --replay: what chooses the stretches, such as a public beacon's value; random by default.",
        ),
    ] = "",
    data_dir: DataDir = "",
    source: SourcePath = "",
    summary: SummaryFile = None,
    resource_uri: ResourceUri = "",
) -> None:
    """Check that a wheel, an environment, an image or a run is what its record says, and the chain behind it.

    Each finding is ok, fail, or absent: a link of the chain is not on this machine and cannot be checked. Exit code 0:
    nothing failed, and with --strict nothing is absent either; 7: a finding failed; 8: the record itself is missing or
    damaged, or with --trust a signature is. Without --trust no signature is checked: whoever can write a folder can
    write a record that fits it.

    Results of a Bazel cache or executor are not checked, so everyone who can write there is trusted. For a wheel, the
    line `trust` says how many results came from where. --rebuild uses none of them. It ends with exit code 7 if the two
    wheels have a difference that is not harmless; --accept R1 lets contents differ. With --sign it writes a signed
    statement beside the wheel, with the level and the files that differ. For a wheel, --trust counts independent
    builds: the wheel's own, and one for each such statement of another trusted key. All signatures of one statement are
    one build. A statement below the level of --accept is a failed finding (exit code 7).

    --replay checks training itself, on any processor and with any number of threads if the run has native kernels. It
    ends with exit code 7 if a stretch gives other bits, and with 4, before any training, if the run has no whole audit
    data or cannot give the same bits here.

    --summary is for those who trust you and do not verify themselves. It is removed first, and written at the end if
    the exit code is 0, 7 or 8; not if the record is too damaged to say what it is of.
    """
    from contextlib import nullcontext

    from toolkit import record, signing
    from toolkit.record import summary as summaries
    from toolkit.record import verification

    state, policy = Path(session.settings.state), signing.read_policy(trust or ())
    found = record.find(target)
    level = _read_level(accept, found, rebuild=rebuild, signs=bool(sign_) and not summary)
    if found.kind != "run" and replay:
        raise UsageError("--replay is for a run", remedy="--rebuild builds a wheel again")
    if not replay and (seed or data_dir or source):
        raise UsageError("--seed, --data-dir and --source are for --replay", remedy="add --replay K")
    if resource_uri and not summary:
        raise UsageError("--resource-uri is for --summary", remedy="add --summary FILE")
    key = load_key(sign_)
    options = {"strict": strict, "accept": level, "rebuild": rebuild, "replay": replay}
    noted = summaries.Summary(target=found, state=state, policy=policy, options=options, resource=resource_uri)
    with summaries.writing(summary, noted, key) if summary else nullcontext():
        done = verification.verify(found, state, policy, level)
        value, text = _describe(session.console, done, signed=bool(policy))
        if not (rebuild or replay) or not done.holds(strict=strict):
            session.console.result(value, text)
        done.require(strict=strict)
        noted.note(done)
        if replay:
            _replay(session, found, replay, seed, (data_dir, source), value, text)
            noted.levels.append(f"TOOLKIT_REPLAYED_{replay}")
        if rebuild:
            noted.levels.append(_build_again(session, found, level, key, bazelrc, value, text))


def _read_level(accept: str, target: "Target", *, rebuild: bool, signs: bool) -> "Level":
    """Return the level of --accept. Raises UsageError: there is no such level, or options do not go together."""
    from toolkit.record.rebuild import LEVELS

    level = next((each for each in LEVELS[1:] if each == accept), None)
    if level is None:
        raise UsageError(f"--accept: there is no level {accept}", remedy="one of R1, R2, R3")
    if rebuild and target.kind != "wheel":
        raise UsageError("--rebuild is for a wheel", remedy="`toolkit reproduce` runs a run again")
    if signs and not rebuild:
        raise UsageError("--sign is for --rebuild or --summary", remedy="`toolkit sign` signs what is there")
    return level


def _describe(console: "Console", done: "Verification", *, signed: bool) -> tuple[dict[str, object], str]:
    """Print the findings; return them for --json, and a line that sums them up."""
    from toolkit import findings, signing
    from toolkit.record import wheel

    target = done.target
    console.say(findings.render(done.findings).rstrip())
    value: dict[str, object] = {"kind": target.kind, "findings": [item.as_dict() for item in done.findings]}
    value |= {"image": target.reference} if target.reference else {"folder": str(target.folder)}
    if target.kind == "wheel" and done.is_sound:
        record = wheel.read_record(target.folder)
        console.heading("trust", wheel.describe_trust(record))
        counts = ("executed", "cached_by", "reused", "remote")
        value["trust"] = {name: record.facts.get("bazel", {}).get(name) for name in counts}
    if not signed and not target.reference:
        value["signature"] = signing.describe(target.path)
        console.heading("signature", signing.describe(target.path))
    return value, f"{target.kind} {target.reference or target.path}: {findings.summarize(done.findings)}"


def _build_again(
    session: Session,
    target: "Target",
    accepted: "Level",
    key: "Signer | None",
    bazelrc: str,
    value: dict[str, object],
    text: str,
) -> str:
    """Build a wheel a second time, and report each difference; return the level as a summary calls it.

    Raises CheckError: it is below the accepted level.
    """
    from dataclasses import asdict

    from toolkit.record import rebuild

    console = session.console
    comparison = rebuild.rebuild(target.folder, session.settings, bazelrc=bazelrc, console=console)
    for each in comparison.differences:
        console.heading(each.kind, f"{each.name or 'the wheel'}: {each.detail}")
    if key:
        console.heading("sign", f"signed: {rebuild.sign(target.folder, comparison, key)}")
    value |= {"level": comparison.level, "differences": [asdict(each) for each in comparison.differences]}
    value |= {"inputs": comparison.inputs, "seconds": comparison.seconds}
    console.result(value, f"{text}; built again in {comparison.seconds:.0f} s: {comparison.summary}")
    rebuild.require_level(comparison, accepted)
    return f"TOOLKIT_REBUILT_{comparison.level}"


def _replay(
    session: Session,
    target: "Target",
    number: int,
    seed: str,
    places: tuple[str, str],
    value: dict[str, object],
    text: str,
) -> None:
    """Train stretches of a run again, and report each. Raises CheckError: one gives other bits."""
    import secrets

    from toolkit import findings, pipeline
    from toolkit.record import audit, reproduction

    console, (data_dir, source) = session.console, places
    seed = seed or secrets.token_hex(16)
    console.heading("seed", seed)
    request = pipeline.Request(settings=session.settings)
    repeated = reproduction.resolve(
        target.folder, request, data_dir=data_dir, source=source, verified=True, console=console
    )
    done = audit.replay(repeated, number, seed, console)
    console.say(findings.render(done.findings).rstrip())
    console.result(value | {"replay": done.as_dict()}, f"{text}; {done.describe()}")
    findings.require(done.findings, remedy="the run is not what its training gives: do not use it")


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
    count = len(json.loads(text)["components"])
    if out:
        files.write_atomically(out, text + "\n")
    session.console.result(json.loads(text), f"{out}: {count} components" if out else text)


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
    from toolkit import digest, files, signing
    from toolkit import report as reports
    from toolkit.report.chain import Trust as Asked

    asked = Asked(state=Path(session.settings.state), policy=signing.read_policy(trust or ()))
    described, text = reports.compose(targets, asked, beside or (), pictures=pictures)
    content = text.encode()
    place = out or Path(f"{reports.name_page(targets)}.html")
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

    from toolkit import report as reports
    from toolkit import signing
    from toolkit.report import text
    from toolkit.report.chain import Trust as Asked

    asked = Asked(state=Path(session.settings.state), policy=signing.read_policy(trust or ()))
    page = reports.describe(targets, asked, pictures=False)
    links = page.chain.links if page.chain else ()
    value = {
        "kind": page.kind,
        "title": page.title,
        "numbers": [asdict(each) for each in page.numbers],
        "links": [{"name": each.name, "state": each.state, "digest": each.digest} for each in links],
    }
    session.console.result(value, text.render(page, width=shutil.get_terminal_size((100, 24)).columns))
