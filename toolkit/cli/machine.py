from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.command import Session, command
from toolkit.errors import EngineError, PreflightError, UsageError

if TYPE_CHECKING:
    from toolkit.doctor.machine import Device
    from toolkit.settings import Settings


@command("tensorflow", "python", "cuda", "cudnn", "platform", "engine", "base_image", "ca_bundle")
def doctor(
    session: Session,
    write_env: Annotated[bool, typer.Option("--write-env", help="Write the .env that compose.yaml reads.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="Do not check whether downloads can be reached.")] = False,
) -> None:
    """Examine this machine: engine, disk, memory, network, GPU. Each finding comes with its remedy."""
    from toolkit import doctor
    from toolkit.findings import render

    console, settings = session.console, session.settings
    findings = doctor.examine(settings, offline=offline)
    lines = [render(findings).rstrip()]
    listed = [
        {**item.as_dict(), "level": item.level, "summary": item.evidence, "facts": dict(item.facts)}
        for item in findings
    ]
    result: dict[str, object] = {"findings": listed}
    if write_env:
        values = doctor.compose_env(findings, settings)
        doctor.prepare_outputs()
        doctor.write_env(values)
        result["env"] = values
        lines.append(f"wrote {doctor.ENV_FILE}: {', '.join(f'{name}={value}' for name, value in values.items())}")
    console.result(result, "\n".join(lines))
    failed = [finding for finding in findings if finding.level == "fail"]
    if failed:
        raise PreflightError(
            f"{len(failed)} of {len(findings)} findings prevent work here: {', '.join(item.id for item in failed)}",
            remedy=failed[0].remedy,
        )


@command("tensorflow", "python", "platform")
def advise(
    session: Session,
    gpu: Annotated[
        str, typer.Option(metavar="NAME", help="A card such as `RTX 5090`, or 8.6; by default those of this machine.")
    ] = "",
    driver: Annotated[str, typer.Option(metavar="VERSION", help="Its driver, such as 550.54.")] = "",
) -> None:
    """Say which TensorFlow runs on a card: published as it is, grafted in minutes, or built in hours."""
    from dataclasses import replace

    from toolkit.doctor import advice
    from toolkit.versions import load_table, numbers

    console, settings = session.console, session.settings
    if driver:
        numbers.parse(driver, "the driver")
    try:
        named = [_name_device(gpu, settings)] if gpu else advice.find_devices()
    except FileNotFoundError:
        named = []
    devices = [replace(device, driver=driver or device.driver) for device in named]
    found = [advice.advise(load_table(), device, settings) for device in devices]
    for line in dict.fromkeys(line for each in found for line in each.advisories):
        console.say(f"  {line}")
    absent = 'no NVIDIA GPU with a driver on this machine; --gpu "RTX 5090" asks about another'
    console.result({"gpus": [each.to_json() for each in found]}, "\n".join(each.render() for each in found) or absent)


def _name_device(gpu: str, settings: "Settings") -> "Device":
    from toolkit.doctor import advice, machine

    place = advice.require_platform(gpu, settings)
    return machine.Device(name=gpu, capability=advice.find_card(gpu).capability, platform=place)


@command()
def ls(
    session: Session,
    kind: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="wheel, graft, run, environment, image, cache or kernels; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of finished wheels.")] = Path("dist"),
) -> None:
    """List what the toolkit made here: wheels, grafts, runs, environments, images, caches and native kernels.

    Each with its size, its age, what its record says, and whether `toolkit clean` removes it. Only records are read;
    `toolkit verify` compares them with the files. Without a container engine, images and caches are left out.
    """
    from dataclasses import asdict

    from toolkit import inventory

    console, settings = session.console, session.settings
    if unknown := [name for name in kind or () if name not in inventory.KINDS]:
        raise UsageError(f"no kind: {unknown[0]!r}", remedy=f"one of {', '.join(inventory.KINDS)}")
    kinds, client = kind or inventory.KINDS, None
    if {"image", "cache"} & set(kinds):
        from toolkit.engine.client import connect

        try:
            client = connect()
        except EngineError as error:
            console.say(f"images and caches are left out: {error.what}")
    wanted = inventory.find(out, Path(settings.runs), Path(settings.state), client, kinds)
    text = inventory.render(wanted) if wanted else "nothing that the toolkit made is here"
    console.result({"items": [asdict(item) for item in wanted]}, text)


@command()
def clean(
    session: Session,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of finished wheels.")] = Path("dist"),
    with_base: Annotated[bool, typer.Option("--with-base", help="Remove the base stand-in too.")] = False,
    with_cache: Annotated[
        bool,
        typer.Option(
            "--with-cache",
            help="Remove Bazel's caches too, hours of compiling and tens of gigabytes, and native kernels.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove containers in which a job is running, too.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
) -> None:
    """Remove the toolkit's images, containers, volumes, environments, unfinished wheels and unfinished reproductions.

    Finished wheels and runs are kept. Bazel's caches, native kernels and images that a user named are left and listed.
    """
    from toolkit.clean import find, find_caches, find_kernels, find_others, remove
    from toolkit.engine.client import connect

    console, settings = session.console, session.settings
    try:
        client = connect()
    except EngineError as error:
        console.say(f"containers and images are left alone: {error.what}")
        client = None
    removed, kept = [], []
    caches, left_caches = find_caches(with_cache=with_cache) if client else ([], [])
    left = [f"cache {each.name} ({each.size}): --with-cache removes what Bazel compiled" for each in left_caches]
    kernels = find_kernels()
    left += [f"kernels {each.name}: --with-cache removes them" for each in kernels if not with_cache]
    left += (
        [f"image {name}: named by a user; `docker image rm {name}`" for name in find_others(client)] if client else []
    )
    found = find(client, Path(settings.state), results=(out, Path(settings.runs)), with_base=with_base)
    for item in [*found, *caches, *(kernels if with_cache else ())]:
        reason = "" if force else item.used
        if not reason and not dry_run:
            reason = remove(item)
        if reason:
            kept.append(f"{item.kind} {item.name}: {reason}")
        else:
            removed.append(f"{item.kind} {item.name}")
    verb = "would remove" if dry_run else "removed"
    lines = [
        *(f"{verb} {name}" for name in removed),
        *(f"kept {name}" for name in kept),
        *(f"left {name}" for name in left),
    ]
    console.result(
        {"removed": removed, "kept": kept, "left": left, "dry_run": dry_run},
        "\n".join(lines) or "nothing that the toolkit made is here",
    )
    if kept and not dry_run:
        raise PreflightError(
            f"{len(kept)} of {len(kept) + len(removed)} could not be removed",
            remedy="stop what uses them, or give --force",
        )
