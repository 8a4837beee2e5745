import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.base.errors import UsageError
from toolkit.base.project import DIST
from toolkit.cli.command import AllowUnsigned, DryRun, From, Out, Session, Sign, Trust, Wheel, command
from toolkit.cli.results import load_key, sign
from toolkit.jobs.wheels import obtain_wheel, order, plan_wheel, read_origin
from toolkit.versions.set import VERSIONS
from toolkit.wheel.build_options import BuildOptions

SET = (*VERSIONS, "base_image", "glibc", "ca_bundle")
"""Settings that say which wheel is built."""

if TYPE_CHECKING:
    from toolkit.base.console import Console
    from toolkit.wheel.build_plan import PlannedWheel
    from toolkit.wheel.wheel_folder import FinishedWheel


@command(
    *SET, "platform", "downloads", build=[field.name for field in fields(BuildOptions)], engine="docker", long=True
)
def build_wheel(
    session: Session,
    options: BuildOptions,
    out: Out = DIST,
    from_: From = "",
    trust: Trust = None,
    allow_unsigned: AllowUnsigned = False,
    sign_: Sign = "",
    collect: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Build nothing: fill this folder, for --downloads, with what wheel and image are built from.",
        ),
    ] = None,
    archives_only: Annotated[
        bool, typer.Option("--archives-only", help="With --collect: leave out the images and the Python packages.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Build a TensorFlow wheel. What cannot work is refused at once; an up-to-date wheel is not built again.

    With --from, the registry is asked first. The wheel is built only if the registry does not have it. Nothing is built
    if the registry does not answer or refuses (exit code 11), or if its wheel is damaged or not signed (8); --out then
    stays as it was. The next command resumes an interrupted download. With --trust, a wheel that is in --out already
    must be signed too (8). With --from, --sign signs only a wheel that this command builds. With a toolkit.lock.yaml, a
    download needs no container engine.

    With --collect, Bazel is asked which archives it wants, and each is checked by its hash. The folder gets the Python
    packages of the image and of Bazel's rules too, and images of the base, the toolchain and Bazel. If it is
    interrupted, run it again: it resumes. Exit code 4: archives are missing, which are named with addresses and hashes.
    """
    from toolkit.base.steps import Plan, print_plan

    if collect and (from_ or sign_):
        raise UsageError("--collect makes no wheel", remedy="leave out --from and --sign")
    if archives_only and not collect:
        raise UsageError("--archives-only is for --collect", remedy="give --collect DIR too")
    if collect:
        _collect(
            session,
            plan_wheel(session.settings, session.console, options),
            collect,
            archives_only=archives_only,
            dry_run=dry_run,
        )
        return
    key = load_key(sign_)
    source = read_origin(session.settings, from_, trust, allow_unsigned=allow_unsigned)
    planned = plan_wheel(session.settings, session.console, options)
    wheel = obtain_wheel(planned, order(session.settings, session.console, out, source, key, dry_run=dry_run))
    if wheel and dry_run:
        print_plan(Plan(steps=()), session.console)
    elif wheel:
        _report_wheel(session.console, planned, wheel)


def _report_wheel(console: "Console", planned: "PlannedWheel", wheel: "FinishedWheel") -> None:
    from toolkit.base import project
    from toolkit.wheel import inspection

    plan, facts = planned.plan, wheel.record.facts
    folder = project.shorten(wheel.folder)
    image = " ".join(("toolkit build-image --wheel", folder, *plan.lock.versions.libraries.flags()))
    host = inspection.describe_host(facts["inspection"])
    console.result(
        {
            "wheel": str(wheel.wheel),
            "digest": wheel.record.digest,
            "folder": str(wheel.folder),
            "plan": plan.digest,
            "reused": wheel.reused,
            "pulled": wheel.pulled,
            "level": plan.level,
            "floating": list(plan.floating),
            "seconds": facts["seconds"],
            "actions": {name: facts["bazel"].get(name) for name in ("executed", "cached", "cached_by", "remote")},
        },
        f"{folder}/{wheel.wheel.name}\n{wheel.record.digest}\n\n"
        f"check it:   toolkit verify {folder}\n"
        f"install it: toolkit install --wheel {folder}{f'   # {host}' if host else ''}\n"
        f"an image:   {image}",
    )


def _collect(session: Session, planned: "PlannedWheel", folder: Path, *, archives_only: bool, dry_run: bool) -> None:
    from dataclasses import asdict

    from toolkit.base.steps import Plan, print_plan
    from toolkit.engine import bundle
    from toolkit.wheel import collection

    console, state = session.console, Path(session.settings.state)
    if dry_run:
        steps = collection.make_steps(planned, folder, archives_only=archives_only)
        print_plan(Plan(steps=tuple(steps)), console)
        return
    if not archives_only:
        bundle.require_own_packages(folder)
    planned.prepare(state)
    source = collection.download_by_hash(session.settings.ca_bundle)
    archives = collection.collect(planned.plan, folder, source, state=state, console=console)
    missing = [archive for archive in archives if not archive.origin]
    if not archives_only:
        carried = collection.collect_images(planned, folder, state=state, console=console)
        console.heading("images", f"{len(carried.names)} images and {len(carried.packages)} Python packages")
    size = sum(archive.bytes for archive in archives)
    text = f"{len(archives) - len(missing)} of {len(archives)} archives, {size / 1e6:.0f} MB, in {folder}"
    console.result({"folder": str(folder), "archives": [asdict(archive) for archive in archives]}, text)
    collection.require_complete(missing)


@command("ca_bundle", long=True)
def push(
    session: Session,
    folder: Annotated[Path, typer.Argument(help="A wheel's folder: dist/NAME.")],
    repository: Annotated[str, typer.Argument(metavar="REGISTRY/REPO", help="Where to push it.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another wheel of the same plan, if the registry has one.")
    ] = False,
) -> None:
    """Push a wheel with its records and signatures to an OCI registry, where build-wheel --from finds it.

    The tag is the plan's digest. The folder's sums are checked first. User and password are those of `docker login`.
    Plain http is used only for this machine, if the name begins with http://. Exit code 11: the registry does not
    answer, or refuses.
    """
    from toolkit.base import signing
    from toolkit.engine import registry
    from toolkit.records import transfer

    console, settings = session.console, session.settings
    _require_wheel(folder, repository)
    where = registry.parse(repository)
    console.heading("signature", signing.describe(folder))
    reference = transfer.push(folder, where, ca_bundle=settings.ca_bundle, replace=replace, console=console)
    console.result({"reference": reference}, reference)


def _require_wheel(folder: Path, repository: str) -> None:
    """Raise a UsageError if there is no folder of a wheel, which may be because folder and registry are swapped."""
    if folder.is_dir():
        if any(folder.glob("*.whl")):
            return
        raise UsageError(
            f"{folder} has no wheel",
            why="a registry takes the folder of a wheel, as build-wheel and graft leave it in dist",
            remedy="a run is one folder: sign and copy it whole, or `toolkit export` its network",
        )
    if Path(repository).is_dir() or re.match(r"(https?:/|[\w-]+(\.[\w-]+)+(:\d+)?/|localhost[:/])", str(folder)):
        raise UsageError("folder and registry are swapped", remedy=f"toolkit push {repository} {folder}")
    raise UsageError(
        f"there is no folder {folder}", remedy="give the folder of a wheel, as build-wheel leaves it in dist"
    )


@command(*SET, "card", "platform", "downloads", build=("apt_snapshot",), engine="docker", remember=True, long=True)
def build_image(
    session: Session,
    *,
    wheel: Wheel = None,
    target: Annotated[
        Literal["runtime", "train", "bazel-worker"],
        typer.Option(
            help="Stage of docker/Dockerfile. bazel-worker: for the workers of a build farm, without a wheel."
        ),
    ] = "train",
    options: BuildOptions,
    tag: Annotated[str, typer.Option(metavar="NAME", help="Name of the image. Default: one made from its plan.")] = "",
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Build an image with the training job and TensorFlow, from a wheel or from the published set."""
    from toolkit.base import manifest
    from toolkit.base.steps import run
    from toolkit.jobs import choice, pipeline

    if target == "bazel-worker":
        if wheel or sign_:
            raise UsageError(
                "a worker's image has no wheel, and no record to sign", remedy="leave out --wheel and --sign"
            )
        _build_worker(session, options, tag=tag, dry_run=dry_run)
        return
    if options.apt_snapshot:
        raise UsageError("--apt-snapshot is for --target bazel-worker", remedy="leave it out")
    console, key = session.console, load_key(sign_)
    how = choice.Manner(console=console, dry_run=dry_run)
    chosen = choice.choose(choice.Wishes(settings=session.settings, wheel=wheel), how)
    resolved = pipeline.choose_environment(chosen, how, target=target, tag=tag, runs=False)
    prepared = pipeline.environment_task(resolved)
    if not run([prepared], console, dry_run=dry_run):
        return
    environment = prepared.result
    sign(session, key, (environment.folder, not environment.reused))
    record = manifest.read(environment.folder)
    size = record.facts["bytes"] if record else 0
    console.result(
        {
            "image": environment.reference,
            "digest": environment.digest,
            "bytes": size,
            "reused": environment.reused,
            "manifest": str(environment.folder / manifest.FILE),
        },
        f"{environment.reference}  {environment.digest}  {size / 1e9:.2f} GB",
    )


def _build_worker(session: Session, options: BuildOptions, *, tag: str, dry_run: bool) -> None:
    from toolkit.base.steps import run
    from toolkit.versions.lock import FILE
    from toolkit.wheel import build_plan, farm_image

    console, settings = session.console, session.settings
    planned = build_plan.plan_wheel(settings, options, lock_file=Path(FILE))
    if not dry_run:
        planned.prepare(Path(settings.state))
    task = farm_image.plan_task(planned, Path(settings.state), console, tag=tag)
    if not run([task], console, dry_run=dry_run):
        return
    worker = task.result
    console.result(
        {"image": worker.reference, "digest": worker.digest, "toolchain": worker.toolchain},
        f"{worker.reference}  {worker.digest}\n"
        f"toolchain {worker.toolchain}: build-wheel asks for the instance toolkit-{worker.toolchain}",
    )
