import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolkit.cli.command import (
    AllowUnsigned,
    Bazel,
    Bazelrc,
    Capabilities,
    CpuTarget,
    DryRun,
    From,
    Jobs,
    Session,
    Sign,
    Snapshot,
    Source,
    Trust,
    Wheel,
    WheelSource,
    command,
    load_key,
    read_origin,
    sign,
)
from toolkit.errors import UsageError

BazelArguments = Annotated[list[str] | None, typer.Option(metavar="--FLAG", help="For Bazel; repeatable.")]
BUILD = ("tensorflow", "python", "cuda", "cudnn", "base_image", "glibc", "ca_bundle")
CacheName = Annotated[str, typer.Option(metavar="NAME", help="Name of the build caches.")]

if TYPE_CHECKING:
    from toolkit.console import Console
    from toolkit.keys import Signer
    from toolkit.wheel.build import BuiltWheel
    from toolkit.wheel.build_plan import WheelPlan
    from toolkit.wheel.build_request import WheelRequest


@command(*BUILD, "platform", "downloads", engine="docker", long=True)
def build_wheel(
    session: Session,
    compute_capability: Capabilities = None,
    source: Source = "",
    bazel: Bazel = "",
    bazel_argument: BazelArguments = None,
    cpu_target: CpuTarget = "avx",
    jobs: Jobs = 0,
    memory: Annotated[
        int, typer.Option(min=0, metavar="GIB", help="Memory that Bazel may plan with; 0: all of the machine's.")
    ] = 0,
    remote_cache: Annotated[str, typer.Option(metavar="URL", help="An existing Bazel cache.")] = "",
    remote_executor: Annotated[str, typer.Option(metavar="URL", help="An existing Bazel executor.")] = "",
    remote_instance_name: Annotated[
        str, typer.Option(metavar="NAME", help="Instance of these services; by default toolkit-{toolchain}, a digest.")
    ] = "",
    bazelrc: Bazelrc = "",
    cache: CacheName = "tensorflow",
    apt_snapshot: Snapshot = "",
    prove_kernels: Annotated[
        str,
        typer.Option(
            metavar="N|all",
            help="Before Bazel, compile N files of TensorFlow's own GPU kernels, spread over the tree, or all of them.",
        ),
    ] = "",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of finished wheels.")] = Path("dist"),
    from_: From = "",
    trust: Trust = None,
    allow_unsigned: AllowUnsigned = False,
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Build a TensorFlow wheel. What cannot work is refused at once; an up-to-date wheel is not built again.

    With --from, the registry is asked first. The wheel is built only if the registry does not have it. Nothing is built
    if the registry does not answer or refuses (exit code 11), or if its wheel is damaged or not signed (8); --out then
    stays as it was. The next command resumes an interrupted download. With --trust, a wheel that is in --out already
    must be signed too (8). With --from, --sign signs only a wheel that this command builds. With a toolkit.lock.yaml, a
    download needs no container engine.
    """
    from toolkit.wheel.build_plan import BuildOptions
    from toolkit.wheel.build_request import WheelRequest

    key = load_key(sign_)
    origin = read_origin(session, from_, trust, allow_unsigned=allow_unsigned)
    options = BuildOptions(
        jobs=jobs,
        memory=memory * 1024,
        remote_cache=remote_cache,
        remote_executor=remote_executor,
        remote_instance=remote_instance_name,
        bazelrc=bazelrc,
        ca_bundle=session.settings.ca_bundle,
        cache_id=cache,
    )
    request = WheelRequest(
        capabilities=compute_capability or (),
        apt_snapshot=apt_snapshot,
        source=source,
        bazel=bazel,
        bazel_arguments=bazel_argument or (),
        cpu_target=cpu_target,
        options=options,
    )
    found = obtain_wheel(session, request, origin, key, out=out, dry_run=dry_run, prove_kernels=prove_kernels)
    if found and not dry_run:
        _report_wheel(session.console, found)


@dataclass(frozen=True)
class WheelResult:
    """A wheel that a command found, downloaded or built."""

    plan: "WheelPlan"
    built: "BuiltWheel"
    pulled: bool  # downloaded by this command


def obtain_wheel(
    session: Session,
    request: "WheelRequest",
    origin: WheelSource,
    key: "Signer | None",
    *,
    out: Path,
    dry_run: bool,
    prove_kernels: str = "",
) -> WheelResult | None:
    """Reuse, download or build a wheel, and sign one that is built; None: a dry run, and there is none yet.

    ``prove_kernels``: what :func:`toolkit.wheel.kernel_proof.plan_task` compiles before it, or empty.

    Raises IntegrityError: a wheel that is in ``out`` already is not signed as --trust asks. A new wheel is signed at
    once: later it would have to be verified again, which takes minutes.
    """
    from toolkit import pipeline
    from toolkit.steps import run
    from toolkit.versions import load_table

    console, settings = session.console, session.settings
    console.add({"advisories": [item.id for item in load_table().list_advisories(settings.tensorflow)]})
    if found := _take_wheel(session, request, origin, out=out, dry_run=dry_run):
        return found
    planned, task = pipeline.plan_wheel(settings, request, console, out=out, dry_run=dry_run)
    from toolkit.wheel import build, kernel_proof  # after the checks, because they are slow to load

    if here := build.find(planned.plan, out):
        origin.require_trusted(here.folder, "")
        if dry_run:
            return WheelResult(planned.plan, here, pulled=False)
    before = (
        [kernel_proof.plan_task(planned.plan, Path(settings.state), console, wanted=prove_kernels)]
        if prove_kernels
        else []
    )
    if not run([*before, task], console, dry_run=dry_run):
        return None
    built = task.result
    sign(session, key, (built.folder, not built.reused))
    return WheelResult(planned.plan, built, pulled=False)


def _take_wheel(
    session: Session, request: "WheelRequest", origin: WheelSource, *, out: Path, dry_run: bool
) -> WheelResult | None:
    """Return a wheel that --from finds; None: there is none, or no registry is asked.

    Raises IntegrityError: a wheel that is in ``out`` already is not signed as --trust asks.
    """
    if not origin.registry:
        return None
    from toolkit.engine import registry
    from toolkit.lock import FILE
    from toolkit.record import exchange
    from toolkit.wheel import build, build_request

    settings, console = session.settings, session.console
    repository = registry.parse(origin.registry)
    # No engine is needed to download. Without one and without a lock, the base image is unknown, and so is the tag.
    plan = build_request.resolve(settings, request, lock_file=Path(FILE), dry_run=True).plan
    asked = repository.tag or exchange.name_tag(plan.digest)
    if dry_run:
        console.heading("registry", f"{repository}:{asked} would be asked for first")
        return None
    if here := build.find(plan, out):
        origin.require_trusted(here.folder, "")
        console.heading("wheel", f"reused {here.wheel.name}")
        return WheelResult(plan, here, pulled=False)
    found = exchange.pull(
        repository,
        plan,
        dist=out,
        state=Path(settings.state),
        policy=origin.policy,
        ca_bundle=settings.ca_bundle,
        console=console,
    )
    if found is None:
        console.heading("registry", f"{repository} has no {asked}: the wheel is built here")
        return None
    console.heading("wheel", f"pulled {found.wheel.name}")
    return WheelResult(plan, found, pulled=True)


def _report_wheel(console: "Console", found: WheelResult) -> None:
    from toolkit import project

    plan, built = found.plan, found.built
    folder, spec, ran = project.shorten(built.folder), plan.lock.spec, built.record.facts["bazel"]
    console.result(
        {
            "wheel": str(built.wheel),
            "digest": built.record.digest,
            "folder": str(built.folder),
            "plan": plan.digest,
            "reused": built.reused,
            "pulled": found.pulled,
            "level": plan.level,
            "floating": list(plan.floating),
            "seconds": built.record.facts["seconds"],
            "actions": {name: ran.get(name) for name in ("executed", "cached", "cached_by", "remote")},
        },
        f"{folder}/{built.wheel.name}\n{built.record.digest}\n\n"
        f"check it:   toolkit verify {folder}\n"
        f"install it: toolkit build-image --wheel {folder} --cuda {spec['cuda']} --cudnn {spec['cudnn']}",
    )


@command(*BUILD, engine="docker", long=True)
def collect(
    session: Session,
    source: Source = "",
    bazel: Bazel = "",
    compute_capability: Capabilities = None,
    bazel_argument: BazelArguments = None,
    cpu_target: CpuTarget = "avx",
    apt_snapshot: Snapshot = "",
    cache: CacheName = "tensorflow",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to fill, for --downloads.")] = Path("downloads"),
    mirror: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder of git directories, OWNER+NAME/repo or OWNER/NAME; repeatable."),
    ] = None,
    archives_only: Annotated[
        bool, typer.Option("--archives-only", help="Leave out the images and the Python packages.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Download nothing: say which archives are missing.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Collect what a wheel and its image are built from, for a machine without a network.

    Bazel is asked which archives it wants, and each is checked by its hash. Archives of GitHub are remade from git
    mirrors, with the same bytes; the others are downloaded. The folder gets the Python packages of the image and of
    Bazel's rules too, and images of the base, the toolchain and Bazel. An interrupted command goes on where it was.
    Exit code 4: archives are missing, which are named with addresses and hashes.
    """
    from dataclasses import asdict

    from toolkit import lock
    from toolkit.steps import Plan, print_plan
    from toolkit.wheel import build_request, collection
    from toolkit.wheel.build_plan import BuildOptions

    console, settings = session.console, session.settings
    request = build_request.WheelRequest(
        capabilities=compute_capability or (),
        apt_snapshot=apt_snapshot,
        source=source,
        bazel=bazel,
        bazel_arguments=bazel_argument or (),
        cpu_target=cpu_target,
        options=BuildOptions(ca_bundle=settings.ca_bundle, cache_id=cache),
    )
    planned = build_request.resolve(settings, request, lock_file=Path(lock.FILE), dry_run=dry_run)
    state = Path(settings.state)
    if dry_run:
        print_plan(Plan(steps=tuple(collection.make_steps(planned, out, archives_only=archives_only))), console)
        return
    sources = [collection.find_in_mirrors(mirror)] if mirror else []
    if not list_:
        sources.append(collection.download_by_hash(settings.ca_bundle))
    archives = collection.collect(planned.plan, out, sources, state=state, console=console)
    missing = [archive for archive in archives if not archive.origin]
    if not list_ and not archives_only:
        carried = collection.collect_images(planned, out, state=state, console=console)
        console.heading("images", f"{len(carried.names)} images and {len(carried.packages)} Python packages")
    size = sum(archive.bytes for archive in archives)
    text = f"{len(archives) - len(missing)} of {len(archives)} archives, {size / 1e6:.0f} MB, in {out}"
    console.result({"folder": str(out), "archives": [asdict(archive) for archive in archives]}, text)
    if not list_:
        collection.require_complete(missing)


@command("ca_bundle", long=True)
def push(
    session: Session,
    folder: Annotated[Path, typer.Argument(help="A wheel's folder: dist/NAME.")],
    repository: Annotated[str, typer.Argument(metavar="REGISTRY/REPO[:TAG]", help="Where to.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another wheel of the same plan, if the registry has one.")
    ] = False,
) -> None:
    """Push a wheel with its records and signatures to an OCI registry, where build-wheel --from finds it.

    The plan's digest is the tag. With a TAG besides, an index of that name has one wheel for each platform, and
    --from REGISTRY/REPO:TAG takes that of its own.

    The folder's sums are checked first. User and password are those of `docker login`. Plain http is used for this
    machine alone, and only where the name begins with http://. Exit code 11: the registry does not answer, or refuses.
    """
    from toolkit import signing
    from toolkit.engine import registry
    from toolkit.record import exchange

    console, settings = session.console, session.settings
    _require_order(folder, repository)
    where = registry.parse(repository)
    console.heading("signature", signing.describe(folder))
    done = exchange.push(folder, where, ca_bundle=settings.ca_bundle, replace=replace, console=console)
    console.result({"reference": done}, done)


def _require_order(folder: Path, repository: str) -> None:
    """Raise a UsageError if there is no such folder, which may be because folder and registry are swapped."""
    if folder.is_dir():
        return
    if Path(repository).is_dir() or re.match(r"(https?:/|[\w-]+(\.[\w-]+)+(:\d+)?/|localhost[:/])", str(folder)):
        raise UsageError("folder and registry are swapped", remedy=f"toolkit push {repository} {folder}")
    raise UsageError(
        f"there is no folder {folder}", remedy="give the folder of a wheel, as build-wheel leaves it in dist"
    )


@command(*BUILD, "card", "platform", "downloads", engine="docker", remember=True, long=True)
def build_image(
    session: Session,
    wheel: Wheel = None,
    target: Annotated[
        Literal["runtime", "train", "bazel-worker"],
        typer.Option(
            help="Stage of docker/Dockerfile; bazel-worker: for the workers of a build farm, without a wheel."
        ),
    ] = "train",
    apt_snapshot: Snapshot = "",
    tag: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the image; by default one made from its plan.")
    ] = "",
    sign_: Sign = "",
    dry_run: DryRun = False,
) -> None:
    """Build an image with the training job and TensorFlow, from a wheel or from the published set.

    On linux/amd64, --platform linux/arm64 makes an image for such a machine: compilers and installer run here, and only
    files enter the image. Nothing of it is run.
    """
    from toolkit import manifest, pipeline
    from toolkit.steps import run

    if target == "bazel-worker":
        if wheel or sign_:
            raise UsageError(
                "a worker's image has no wheel, and no record to sign", remedy="leave out --wheel and --sign"
            )
        _build_worker(session, apt_snapshot, tag=tag, dry_run=dry_run)
        return
    if apt_snapshot:
        raise UsageError("--apt-snapshot is for --target bazel-worker", remedy="leave it out")
    console, key = session.console, load_key(sign_)
    settings = session.settings
    request = pipeline.Request(settings=settings, wheel=wheel, target=target, tag=tag, dry_run=dry_run, runs=False)
    resolved = pipeline.resolve(pipeline.choose_set(request, console), console)
    prepared = pipeline.environment_task(resolved, console)
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


def _build_worker(session: Session, apt_snapshot: str, *, tag: str, dry_run: bool) -> None:
    from toolkit.lock import FILE
    from toolkit.steps import run
    from toolkit.wheel import build_request, farm_image
    from toolkit.wheel.build_plan import BuildOptions

    console, settings = session.console, session.settings
    asked = build_request.WheelRequest(apt_snapshot=apt_snapshot, options=BuildOptions(ca_bundle=settings.ca_bundle))
    planned = build_request.resolve(settings, asked, lock_file=Path(FILE), dry_run=dry_run)
    task = farm_image.plan_task(planned, Path(settings.state), console, tag=tag)
    if not run([task], console, dry_run=dry_run):
        return
    made = task.result
    console.result(
        {"image": made.reference, "digest": made.digest, "toolchain": made.toolchain},
        f"{made.reference}  {made.digest}\n"
        f"toolchain {made.toolchain}: build-wheel asks for the instance toolkit-{made.toolchain}",
    )
