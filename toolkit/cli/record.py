from pathlib import Path
from typing import Annotated

import typer

from toolkit.cli.command import Bazelrc, DryRun, Gpu, Session, Trust, Wheel, command, load_key

REMEDIES = {
    "wheel": "build the wheel again",
    "smoke": "`toolkit smoke` writes it again",
    "environment": "remove its folder; the next command makes it again",
    "image": "`toolkit build-image` makes it again",
    "run": "`toolkit reproduce` runs it again; a copy of the folder may still be whole",
}


@command("ca_bundle")
def verify(
    session: Session,
    target: Annotated[
        str,
        typer.Argument(
            help="A wheel's folder (dist/NAME), a run's (runs/NAME), an environment's or image's below the state "
            "folder, a smoke report in it, or an image as NAME:TAG."
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
            "--sign", metavar="KEY", help="With --rebuild: sign what the second build gave, beside the wheel."
        ),
    ] = "",
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
    """
    from dataclasses import asdict
    from pathlib import Path

    from toolkit import findings as findings_
    from toolkit import record as records
    from toolkit import signing
    from toolkit.errors import UsageError
    from toolkit.record import attestation, wheel
    from toolkit.record import rebuild as rebuilds

    console, settings = session.console, session.settings
    policy = signing.read_policy(trust or ())
    found = records.find(target)
    accepted = next((level for level in rebuilds.LEVELS[1:] if level == accept), None)
    if accepted is None:
        raise UsageError(f"--accept: there is no level {accept}", remedy="one of R1, R2, R3")
    if rebuild and found.kind != "wheel":
        raise UsageError("--rebuild is for a wheel", remedy="`toolkit reproduce` runs a run again")
    if sign_ and not rebuild:
        raise UsageError("--sign is for --rebuild", remedy="`toolkit sign` signs what is there")
    key = load_key(sign_)
    signatures = attestation.check_chain(found, Path(settings.state), policy) if policy else []
    # What is forged is not read any further.
    sound = all(item.state == "ok" for item in signatures)
    builders = (
        [rebuilds.count_builders(found.folder, policy, accepted)] if policy and sound and found.kind == "wheel" else []
    )
    reports = attestation.check_reports(found, Path(settings.state)) if policy and sound else []
    findings = [
        *signatures,
        *builders,
        *reports,
        *(records.verify(found, Path(settings.state), signed=bool(policy)) if sound else ()),
    ]
    console.say(findings_.render(findings).rstrip())
    value: dict[str, object] = {"kind": found.kind, "findings": [item.as_dict() for item in findings]}
    value |= {"image": found.reference} if found.reference else {"folder": str(found.folder)}
    if found.kind == "wheel" and sound:
        record = wheel.read_record(found.folder)
        console.heading("trust", wheel.describe_trust(record))
        counts = ("executed", "cached_by", "reused", "remote")
        value["trust"] = {name: record.facts.get("bazel", {}).get(name) for name in counts}
    if not policy and not found.reference:
        value["signature"] = signing.describe(found.place)
        console.heading("signature", signing.describe(found.place))
    text = f"{found.kind} {found.reference or found.place}: {findings_.summarize(findings)}"
    if not rebuild:
        console.result(value, text)
    attestation.require(signatures)
    findings_.require(findings, remedy=REMEDIES[found.kind], strict=strict)
    if rebuild:
        comparison = rebuilds.rebuild(found.folder, settings, bazelrc=bazelrc, console=console)
        for each in comparison.differences:
            console.heading(each.kind, f"{each.name or 'the wheel'}: {each.detail}")
        if key:
            console.heading("sign", f"signed: {rebuilds.sign(found.folder, comparison, key)}")
        value |= {"level": comparison.level, "differences": [asdict(each) for each in comparison.differences]}
        value |= {"inputs": comparison.inputs, "seconds": comparison.seconds}
        console.result(value, f"{text}; built again in {comparison.seconds:.0f} s: {comparison.summary}")
        rebuilds.require_level(comparison, accepted)


@command("tensorflow", "python", "cuda", "cudnn", "engine", "archive", "base_image", "ca_bundle")
def reproduce(
    session: Session,
    run: Annotated[Path, typer.Argument(help="A finished run's folder, or the manifest.json in it.")],
    data_dir: Annotated[
        str, typer.Option(metavar="DIR", help="Where the local copy of the data is now, for a run that read one.")
    ] = "",
    source: Annotated[
        str,
        typer.Option(metavar="PATH", help="Where the run or file is now that it began with or went on from."),
    ] = "",
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
            remedy=f"compare the curves: python -m train.compare {record.folder} {outcome.kept}",
        )


@command()
def sign(
    session: Session,
    target: Annotated[str, typer.Argument(help="What `toolkit verify` takes.")],
    key: Annotated[
        str, typer.Option("--key", metavar="KEY", help="The file of a private key, env:NAME or agent:NAME.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the signatures of what was there before.")
    ] = False,
) -> None:
    """Verify a wheel, environment, image, smoke report or run, and sign it if it holds.

    The envelope attestation.dsse.json lies beside it. Further keys add their signatures to it. What has changed since
    it was signed is refused.
    """
    from toolkit import keys, record
    from toolkit.record import attestation

    signer = keys.load(key)
    found = record.find(target)
    done = attestation.sign(found, Path(session.settings.state), signer, replace=replace)
    session.console.result({"key": signer.public_key.keyid, "done": done}, done)


@command()
def make_key(
    session: Session,
    file: Annotated[Path, typer.Argument(help="File of the private key; the public one is FILE.pub.")],
) -> None:
    """Make an ed25519 key pair. The private key is not encrypted, and only its owner can read it."""
    from toolkit import keys

    made = keys.make(file)
    public = f"{file}.pub"
    session.console.result({"key": made, "private": str(file), "public": public}, f"{public}  key {made[:8]}")
