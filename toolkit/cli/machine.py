import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.base import files
from toolkit.base.errors import EngineError, PreflightError, UsageError
from toolkit.base.project import DIST
from toolkit.cli.command import Out, Session, command
from toolkit.versions.set import NONE, VERSIONS

if TYPE_CHECKING:
    from toolkit.doctor.machine import Machine
    from toolkit.records.clean import Leftover
    from toolkit.versions.settings import Settings


@command(*VERSIONS, "platform", "engine", "card", "base_image", "ca_bundle")
def doctor(
    session: Session,
    write_env: Annotated[bool, typer.Option("--write-env", help="Write the .env that compose.yaml reads.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not check whether downloads can be reached.")] = False,
) -> None:
    """Examine this machine: engine, disk, memory, network, GPU. Each finding comes with its remedy."""
    from toolkit.base.findings import render
    from toolkit.doctor import compose_env, examination

    console, settings = session.console, session.settings
    findings = examination.examine(settings, offline=offline)
    lines = [render(findings).rstrip()]
    listed = [
        {**item.as_dict(), "level": item.level, "summary": item.evidence, "facts": dict(item.facts)}
        for item in findings
    ]
    result: dict[str, object] = {"findings": listed}
    if write_env:
        values = compose_env.compose(findings, settings)
        compose_env.prepare_outputs()
        values |= compose_env.claim_state(settings)
        compose_env.write(values)
        result["env"] = values
        lines.append(f"wrote {compose_env.FILE}: {', '.join(f'{name}={value}' for name, value in values.items())}")
    console.result(result, "\n".join(lines))
    failed = [finding for finding in findings if finding.level == "fail"]
    if failed:
        raise PreflightError(
            f"{len(failed)} of {len(findings)} findings prevent work here: {', '.join(item.id for item in failed)}",
            remedy=failed[0].remedy,
        )


@command(*VERSIONS, "platform", "engine", "card", partial=True)
def advise(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="CARD", help="A card such as `RTX 5090`, 5090 or sm_120; by default those here.")
    ] = "",
    gpu: Annotated[str, typer.Option(metavar="NAME", help="The same as CARD.")] = "",
    driver: Annotated[str, typer.Option(metavar="VERSION", help="The driver, such as 550.54.")] = "",
    machine_glibc: Annotated[
        str,
        typer.Option("--glibc", metavar="X.Y", help="glibc of the machine, such as 2.17, for use without a container."),
    ] = "",
) -> None:
    """Say which TensorFlow runs on a card: published as it is, grafted in minutes, or built in hours.

    One of --cuda and --cudnn may be given alone.
    """
    from toolkit.doctor import advice
    from toolkit.doctor.decision import AUTO, decide
    from toolkit.versions.table import load_table

    console, settings, table = session.console, session.settings, load_table()
    asked = settings.asked
    named = [card for card in (name, gpu) if card]
    if len(named) > 1:
        raise UsageError("a card is given twice", why=f"{name!r}, and {gpu!r} by --gpu", remedy="leave one out")
    machine = _describe_machine(settings, named[0] if named else "", driver=driver, glibc=machine_glibc)
    # A card that is named goes before a lower layer's `none`, but not before that of a flag, such as `--cuda none`.
    closed = settings.card == NONE and (not named or settings.sources["card"] == "flag")
    card = NONE if closed else AUTO
    decision = decide(machine, asked, card=card, table=table)
    gpus = [advice.advise(table, device, machine, asked, card).to_json() for device in dict.fromkeys(machine.devices)]
    value = {"decision": decision.to_json(), "command": decision.way.command, "gpus": gpus}
    console.result(value, advice.render(decision, machine, table), prose=True)


def _describe_machine(settings: "Settings", card: str, *, driver: str, glibc: str) -> "Machine":
    """Return this machine, or one with the card that was named; with the driver and the C library that were given."""
    from dataclasses import replace

    from toolkit.doctor import advice, reading
    from toolkit.doctor.cards import find_card
    from toolkit.doctor.machine import Device, Machine
    from toolkit.versions import numbers

    for text, noun in ((driver, "the driver"), (glibc, "glibc")):
        if text:
            numbers.parse(text, noun)
    card = card or (settings.card if settings.card not in {"auto", NONE} else "")
    engine = "" if settings.engine == "auto" else settings.engine
    if card:
        place = advice.require_platform(card, settings)
        device = Device(name=card, capability=find_card(card).capability, driver=driver, platform=place)
        machine = Machine(devices=(device,), platform=place, engine=engine)
    else:
        machine = reading.read_machine(settings)
        if driver:
            devices = tuple(replace(device, driver=driver) for device in machine.devices)
            machine = replace(
                machine, devices=devices or (Device(name="a card", capability="", driver=driver),), fault=None
            )
    return replace(machine, glibc=glibc, engine=engine or "host") if glibc else machine


@command()
def ls(
    session: Session,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="Only of this kind, such as wheel, run or environment; repeatable."),
    ] = None,
    out: Out = DIST,
) -> None:
    """List what the toolkit made: wheels, grafts, runs and environments here, and what is in the container engine.

    Each with its size, its age, what its record says, whether `toolkit clean` removes it, and whose it is if it is not
    of this state folder. Only records are read; `toolkit verify` compares them with the files.
    """
    from dataclasses import asdict

    from toolkit.records import inventory

    console, settings = session.console, session.settings
    kinds, client = kind or inventory.list_kinds(), None
    if unknown := [name for name in kinds if name not in inventory.list_kinds()]:
        raise UsageError(f"no kind: {unknown[0]!r}", remedy=f"one of {', '.join(inventory.list_kinds())}")
    if {*inventory.IN_ENGINE} & set(kinds):
        from toolkit.engine.client import connect

        try:
            client = connect()
        except EngineError as error:
            console.say(f"what is in the engine is left out: {error.what}")
    wanted = inventory.find(out, Path(settings.runs), Path(settings.state), client, kinds)
    text = inventory.render(wanted) if wanted else "nothing that the toolkit made is here"
    console.result({"items": [asdict(item) for item in wanted]}, text)


@command()
def clean(
    session: Session,
    out: Out = DIST,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Remove what your other state folders made too, and what no state folder has a record of. What runs "
            "there is kept.",
        ),
    ] = False,
    with_cache: Annotated[
        bool,
        typer.Option(
            "--with-cache",
            help="Remove Bazel's caches too, hours of compiling and tens of gigabytes, and native kernels. All state "
            "folders share them.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove containers of this state folder in which a job is running, too."),
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. Without a terminal, nothing is removed without it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> None:
    """Remove what this state folder made: images, containers, environments, unfinished wheels and reproductions.

    It lists them and asks first. Finished wheels and runs are kept. What another state folder made or uses is listed
    with the path of that folder. Volumes, Bazel's caches, native kernels and images that a user named are listed too.
    """
    from toolkit.engine.client import connect
    from toolkit.records import clean

    settings = session.settings
    try:
        client = connect()
    except EngineError as error:
        session.console.say(f"containers and images are left alone: {error.what}")
        client = None
    scope = clean.Scope(everything=everything, force=force)

    def find() -> "list[Leftover]":
        leftovers = clean.find(client, Path(settings.state), results=(out, Path(settings.runs)), scope=scope)
        caches = clean.find_caches(with_cache=with_cache) if client else []
        return [*leftovers, *caches, *clean.find_kernels(with_cache=with_cache)]

    leftovers = find()
    wanted = [item for item in leftovers if not item.left]
    if dry_run or not any(not item.used for item in wanted):
        _report_cleaning(session, leftovers, {item.title: item.used for item in wanted if item.used}, dry_run=dry_run)
        return
    if not yes:
        _require_consent(session, leftovers)
        titles = {item.title for item in wanted}
        leftovers = find()  # a job may have been started while the question was open
        leftovers = [item for item in leftovers if item.left or item.title in titles]
    _report_cleaning(session, leftovers, clean.remove_all(item for item in leftovers if not item.left))


def _require_consent(session: Session, leftovers: "list[Leftover]") -> None:
    """Ask whether to remove things, and end the command if the answer is no.

    Raises UsageError, after the same list as with --dry-run, if there is no terminal to ask on.
    """
    wanted = [item for item in leftovers if not item.left and not item.used]
    size = files.format_size(sum(item.bytes or 0 for item in wanted))
    things = f"{len(wanted)} thing{'s' if len(wanted) > 1 else ''}, {size}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        _report_cleaning(session, leftovers, {}, dry_run=True)
        raise UsageError(
            f"nothing was removed: there is no terminal to ask on whether to remove {things}", remedy="give --yes"
        )
    lines = [f"  {item.describe()}" for item in wanted]
    if not session.console.ask("\n".join([*lines, f"remove {'these' if len(wanted) > 1 else 'this'} {things}?"])):
        left = [f"{item.title}: {item.left or item.used or 'the answer was no'}" for item in leftovers]
        value = {"removed": [], "kept": [], "left": left, "sizes": {}, "dry_run": False}
        session.console.result(value, "nothing was removed")
        session.console.close()
        raise typer.Exit


def _report_cleaning(
    session: Session, leftovers: "list[Leftover]", kept: Mapping[str, str], *, dry_run: bool = False
) -> None:
    """Print what was removed, or would be, and what stays. Raises PreflightError if something could not be removed."""
    wanted = [item for item in leftovers if not item.left]
    kept = {**{item.title: item.used for item in wanted if item.used}, **kept}
    removed = [item for item in wanted if item.title not in kept]
    left = [item for item in leftovers if item.left]
    verb = "would remove" if dry_run else "removed"
    lines = [
        *(f"{verb} {item.describe()}" for item in removed),
        *(f"kept {title}: {reason}" for title, reason in kept.items()),
        *(f"left {item.describe()}: {item.left}" for item in left),
    ]
    value = {
        "removed": [item.title for item in removed],
        "kept": [f"{title}: {reason}" for title, reason in kept.items()],
        "left": [f"{item.title}: {item.left}" for item in left],
        "sizes": {item.title: item.bytes for item in leftovers if item.bytes is not None},
        "dry_run": dry_run,
    }
    session.console.result(value, "\n".join(lines) or "nothing that the toolkit made is here")
    if kept and not dry_run:
        raise PreflightError(
            f"{len(kept)} of {len(wanted)} could not be removed",
            remedy="stop what uses them; --force removes containers of this state folder with their jobs",
        )
