from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import (
    DataDir,
    ResourceUri,
    Session,
    SourcePath,
    SummaryFile,
    Trust,
    command,
    load_key,
)
from toolkit.errors import UsageError
from toolkit.wheel.build_options import BuildOptions

if TYPE_CHECKING:
    from toolkit.console import Console
    from toolkit.keys import Signer
    from toolkit.record import Target
    from toolkit.record.rebuild import Level
    from toolkit.record.verification import Verification


@command("ca_bundle", build=("bazelrc",), long=True)
def verify(
    session: Session,
    *,
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
    options: BuildOptions,
    sign_: Annotated[
        str,
        typer.Option(
            "--sign",
            metavar="KEY",
            help="Sign the --summary, and beside the wheel what --rebuild gave, or beside the run what --replay gave.",
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
    data or cannot give the same bits here. With --sign it writes a signed statement beside the run, passed or failed:
    a policy can ask for one.

    --summary is for those who trust you and do not verify themselves. It is removed first, and written at the end if
    the exit code is 0, 7 or 8; not if the record is too damaged to say what it is of.
    """
    import secrets
    from contextlib import ExitStack
    from dataclasses import replace

    from toolkit import record, signing
    from toolkit.record import verification, verification_summary

    state, policy = Path(session.settings.state), signing.read_policy(trust or ())
    found = record.find(target)
    level = _read_level(accept, found, rebuild=rebuild, signs=bool(sign_) and not (summary or replay))
    if found.kind != "run" and replay:
        raise UsageError("--replay is for a run", remedy="--rebuild builds a wheel again")
    if not replay and (seed or data_dir or source):
        raise UsageError("--seed, --data-dir and --source are for --replay", remedy="add --replay K")
    if resource_uri and not summary:
        raise UsageError("--resource-uri is for --summary", remedy="add --summary FILE")
    key = load_key(sign_)
    seed = seed or (secrets.token_hex(16) if replay else "")
    recorded = {"strict": strict, "accept": level, "rebuild": rebuild, "replay": replay, "seed": seed}
    policy = replace(policy, demands=policy.demands.waive(stretches=replay, builder=rebuild))
    noted = verification_summary.Summary(
        target=found, state=state, policy=policy, options=recorded, resource=resource_uri
    )
    with ExitStack() as stack:
        if summary:
            stack.enter_context(verification_summary.writing(summary, noted, key))
        done = verification.verify(found, state, policy, level)
        value, text = _describe(session.console, done, signed=bool(policy))
        if not (rebuild or replay) or not done.holds(strict=strict):
            session.console.result(value, text)
        done.require(strict=strict)
        noted.note(done)
        if replay and key:  # not before: a statement says that the stretches were trained again
            stack.enter_context(verification_summary.signing_beside(noted, key))
        if replay:
            _replay(session, found, replay, seed, (data_dir, source), value, text)
            noted.levels.append(f"{verification_summary.REPLAYED}{replay}")
        if rebuild:
            noted.levels.append(_build_again(session, found, level, key, options.bazelrc, value, text))


def _read_level(accept: str, target: "Target", *, rebuild: bool, signs: bool) -> "Level":
    """Return the level of --accept. Raises UsageError: there is no such level, or options do not go together."""
    from toolkit.record.rebuild import LEVELS

    level = next((each for each in LEVELS[1:] if each == accept), None)
    if level is None:
        raise UsageError(f"--accept: there is no level {accept}", remedy="one of R1, R2, R3")
    if rebuild and target.kind != "wheel":
        raise UsageError("--rebuild is for a wheel", remedy="`toolkit reproduce` runs a run again")
    if signs and not rebuild:
        raise UsageError("--sign is for --rebuild, --replay or --summary", remedy="`toolkit sign` signs what is there")
    return level


def _describe(console: "Console", done: "Verification", *, signed: bool) -> tuple[dict[str, object], str]:
    """Print the findings; return them for --json, and a line that sums them up."""
    from toolkit import findings, signing
    from toolkit.record import verify_wheel

    target = done.target
    console.say(findings.render(done.findings).rstrip())
    value: dict[str, object] = {"kind": target.kind, "findings": [item.as_dict() for item in done.findings]}
    value |= {"image": target.reference} if target.reference else {"folder": str(target.folder)}
    if target.kind == "wheel" and done.is_sound:
        record = verify_wheel.read_record(target.folder)
        console.heading("trust", verify_wheel.describe_trust(record))
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
    from toolkit import findings, pipeline
    from toolkit.record import audit, reproduction

    console, (data_dir, source) = session.console, places
    console.heading("seed", seed)
    request = pipeline.Request(settings=session.settings)
    repeated = reproduction.resolve(
        target.folder, request, data_dir=data_dir, source=source, verified=True, console=console
    )
    done = audit.replay(repeated, number, seed, console)
    console.say(findings.render(done.findings).rstrip())
    console.result(value | {"replay": done.as_dict()}, f"{text}; {done.describe()}")
    findings.require(done.findings, remedy="the run is not what its training gives: do not use it")
