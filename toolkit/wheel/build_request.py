import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import digest, files, lock, versions
from toolkit.console import Console
from toolkit.errors import CheckError, EngineError, PreflightError, UnsupportedError, UsageError
from toolkit.lock import Lock
from toolkit.settings import Settings, find_own_platform, require_own_platform
from toolkit.versions import Spec, Table, find_locked, load_table, plan_set
from toolkit.versions.sets import lock_set
from toolkit.wheel import cpu_targets
from toolkit.wheel.build_plan import IMAGE_SCHEME, BuildContext, BuildOptions, WheelPlan, plan
from train.system.addresses import find_credentials

if TYPE_CHECKING:
    from docker import DockerClient

    from toolkit.engine.bundle import Bundle

_VERSION = re.compile(r"^(?:TF)?_VERSION = ['\"]([0-9.]+)", re.MULTILINE)
_REMOTE = re.compile(r"(?:https|ssh|git)://[^#\s]+#(?P<commit>[0-9a-f]{40})")


@dataclass(frozen=True, kw_only=True)
class WheelRequest:
    capabilities: Sequence[str] = ()  # as the user wrote them; empty for the default
    apt_snapshot: str = ""  # day of Debian's snapshot archive, or empty
    source: str = ""  # source, bazel: folder or URL that replaces the pinned one, or empty
    bazel: str = ""
    bazel_arguments: Sequence[str] = ()  # flags for Bazel
    cpu_target: cpu_targets.Target = "avx"
    options: BuildOptions = field(default_factory=BuildOptions)  # how to build


@dataclass(frozen=True, kw_only=True)
class PlannedWheel:
    spec: Spec  # the versions and the warnings about them
    plan: WheelPlan  # what will be run
    table: Table  # the version table
    engine: str  # name and version of the container engine; empty if none answered
    images: "EngineImages"  # the images that it starts from


@dataclass(frozen=True, kw_only=True)
class EngineImages:
    base: str  # reference of the base image
    digest: str = ""  # its content digest; empty if no engine answered
    pinned: str = ""  # the reference, with its digest if a registry gave one
    distribution: str = ""  # codename of its Linux distribution; empty if it is unknown
    bazel_digest: str = ""  # content digest of Bazel's image, if Bazel is an image on this machine
    engine: str = ""  # name and version of the engine, or empty

    def describe_base(self) -> dict[str, str]:
        return {"base": self.base, "digest": self.digest, "pinned": self.pinned, "distribution": self.distribution}


def resolve(settings: Settings, request: WheelRequest, *, lock_file: Path, dry_run: bool = False) -> PlannedWheel:
    """Plan a wheel. ``dry_run``: a missing engine or base image is not an error.

    Raises UnsupportedError or UsageError: the request cannot work; CheckError: the lock differs from the present pins;
    EngineError or PreflightError: there is no engine or no base image.
    """
    table, spec = load_table(), resolve_spec(settings, request.capabilities)
    if not dry_run:
        require_own_platform(settings, "a wheel is built")
    locked = lock.read(lock_file)
    source = find_source(request.source) if request.source else None
    if request.source:
        require_version(request.source, tensorflow=spec.tensorflow, bazel=spec.bazel)
    carried = _find_bundle(settings)
    images = find_images(settings, required=not dry_run, bazel=request.bazel, carried=carried)
    spec = resolve_spec(settings, request.capabilities, images.distribution)
    bazel = _choose_bazel(request.bazel, images, carried)
    present = collect_pins(spec, table, images, locked, request.apt_snapshot)
    if present.pins["apt-snapshot"] and not table.bases[spec.base].snapshots:
        raise UnsupportedError(
            f"the packages of {table.bases[spec.base].name} cannot be of a given day",
            why="its apt is older than 3.0, which is the first to read the snapshot archive",
            remedy=f"leave out --apt-snapshot, or --base-image {table.default.base_image}",
        )
    if locked:
        lock.require_fit(locked, present)
    pins = _fill(present, locked)
    if carried:
        _use_bundle(carried, pins, Path(settings.state), dry_run=dry_run)
    arguments = [
        *spec.bazel_arguments,
        *cpu_targets.list_flags(request.cpu_target, spec.platform),
        *request.bazel_arguments,
    ]
    stages = carried.contexts if carried else {}
    options = replace(request.options, base=images.pinned, downloads=settings.downloads, stages=stages)
    planned = plan(pins, options, source=source, bazel=bazel, bazel_arguments=arguments)
    return PlannedWheel(spec=spec, plan=planned, table=table, engine=images.engine, images=images)


def _find_bundle(settings: Settings) -> "Bundle | None":
    if not settings.downloads:
        return None
    from toolkit.engine import bundle  # loads the engine's SDK, which `toolkit build-wheel --dry-run` may not need

    return bundle.read(Path(settings.downloads))


def _choose_bazel(text: str, images: "EngineImages", carried: "Bundle | None") -> BuildContext | None:
    if carried is None:
        return find_bazel(text, images.bazel_digest) if text else None
    if text:
        raise UsageError("--bazel is given, and the folder of --downloads has a Bazel", remedy="leave out --bazel")
    return BuildContext(**carried.bazel) if carried.bazel else None


def _use_bundle(carried: "Bundle", pins: Lock, state: Path, *, dry_run: bool) -> None:
    """Load the images of a folder, except in a dry run. Raises UsageError: they are those of another build."""
    from toolkit.engine import bundle
    from toolkit.engine.client import connect

    collected = Lock(spec=carried.lock["spec"], pins=carried.lock["pins"])
    if changes := lock.compare(collected, pins):
        raise UsageError(
            f"{carried.folder} was collected for another build",
            why="; ".join(changes),
            remedy="give the versions that it was collected for, or collect again",
        )
    if not dry_run:
        bundle.load(carried, connect(), state)


def resolve_spec(settings: Settings, capabilities: Sequence[str], distribution: str = "") -> Spec:
    """Return the set for these settings. ``distribution``: of the base image, if its name does not tell it."""
    table = load_table()
    named = table.find_base(settings.base_image)
    if distribution and distribution not in table.bases:
        raise UnsupportedError(
            f"no wheel is built on {settings.base_image}, whose distribution is {distribution}",
            why=f"the packages of its compilers are known for {', '.join(table.bases)}",
            remedy=f"--base-image {table.default.base_image}",
        )
    return versions.resolve(
        table,
        tensorflow=settings.tensorflow,
        python=settings.python,
        cuda=settings.cuda or None,
        cudnn=settings.cudnn or None,
        capabilities=capabilities,
        base=distribution or (named.codename if named else None),
        platform=settings.platform,
        glibc=settings.glibc,
    )


def find_images(
    settings: Settings, *, required: bool, bazel: str = "", carried: "Bundle | None" = None
) -> EngineImages:
    """Return the images that a build starts from. Unless ``required``, what the engine does not tell stays empty.

    ``carried``: images in a folder, which the engine need not have yet.

    Raises EngineError: the engine does not answer; PreflightError: it has no base image and can pull none.
    """
    from toolkit.engine.client import connect, find_distribution, select_base, translating_errors

    known: dict[str, str] = {}
    if settings.platform != find_own_platform():
        # The engine has the image of its own platform.
        return EngineImages(**carried.base) if carried else EngineImages(base=settings.base_image)
    try:
        client = connect()
        with translating_errors("reporting its version"):
            known["engine"] = f"docker {client.version()['Version']}"
        if carried:
            return EngineImages(**carried.base, **known)
        known["bazel_digest"] = _find_bazel_digest(client, bazel)
        found = select_base(client, settings)
        known["distribution"] = find_distribution(client, found, Path(settings.state))
    except (EngineError, PreflightError):
        if required:
            raise
        if carried:
            return EngineImages(**carried.base)
        return EngineImages(base=settings.base_image, **known)
    return EngineImages(base=found.reference, digest=found.identity, pinned=found.pinned, **known)


def collect_pins(spec: Spec, table: Table, images: EngineImages, locked: Lock | None, apt_snapshot: str = "") -> Lock:
    """Return the present pins. The lock adds a snapshot day if none is given, and a commit if the table has none."""
    pins = locked.pins if locked else {}
    return lock.collect(
        spec,
        table,
        base_image=images.base,
        base_digest=images.digest,
        apt_snapshot=apt_snapshot or pins.get("apt-snapshot", ""),
        commit=pins.get("tensorflow-commit", ""),
    )


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    settings: Settings
    capabilities: Sequence[str] = ()
    apt_snapshot: str = ""
    day: str = ""  # packages that are newer are not taken into a new run-time set; empty: the table's day

    @property
    def versions(self) -> tuple[str, str, str, str]:
        return self.settings.tensorflow, self.settings.python, self.settings.cuda, self.settings.cudnn


def check_lock(request: LockRequest, path: Path) -> Lock:
    """Return the lock in a file. Raises CheckError: there is none, or it differs from the present pins."""
    plan_set(load_table(), *request.versions)
    resolve_spec(request.settings, request.capabilities)
    locked = lock.read(path)
    if locked is None:
        raise CheckError(f"there is no {path}", remedy="write it: toolkit lock")
    lock.require_fit(locked, _collect_present(request, locked))
    return locked


def write_lock(request: LockRequest, path: Path, console: Console) -> Lock:
    """Write a lock and return it. The run-time set of its versions is made first, if the clone has none."""
    table, settings = load_table(), request.settings
    runtime = plan_set(table, *request.versions)
    resolve_spec(settings, request.capabilities)
    lock.read(path)  # one that cannot be read ends the command before its work
    if not find_locked(table, *request.versions):
        with console.timed("set", runtime.requirements):
            lock_set(runtime, table, day=request.day or table.updated, ca_bundle=settings.ca_bundle)
    present = _collect_present(request, lock.read(path))
    commit = present.pins["tensorflow-commit"] or lock.ask_commit(present.spec["tensorflow"])
    named = lock.name_set(runtime.requirements)
    with files.changing(path):  # another command may have written a day or a commit meanwhile
        present = _collect_present(request, lock.read(path))
        pins = {**present.pins, "tensorflow-commit": present.pins["tensorflow-commit"] or commit}
        sets = {name: value for name, value in named.items() if name not in pins}
        present = replace(present, pins=pins, sets=sets)
        lock.write(path, present)
    return present


def _collect_present(request: LockRequest, locked: Lock | None) -> Lock:
    spec = resolve_spec(request.settings, request.capabilities)
    images = find_images(request.settings, required=False)
    # Only the writer of the old lock knows why its day was chosen, so a new lock keeps it.
    return collect_pins(spec, load_table(), images, locked, request.apt_snapshot)


def find_source(text: str) -> BuildContext:
    """Return the build context of a source folder or ``URL#COMMIT``. Raises UsageError: it is neither."""
    match = _REMOTE.fullmatch(text)
    if match and not find_credentials(text):
        return BuildContext(location=text, identity=f"git:{match['commit']}")
    folder = Path(text)
    if "://" in text or not folder.is_dir():
        raise UsageError(
            f"no source tree: {text}", remedy="give a folder, or URL#COMMIT with all 40 digits of the commit"
        )
    missing = [name for name in ("configure", ".bazelversion") if not (folder / name).is_file()]
    if missing:
        raise UsageError(
            f"{text} is not TensorFlow's source tree",
            why=f"it has no {' and no '.join(missing)}",
            remedy="give its root",
        )
    return BuildContext(location=str(folder.resolve()), identity=identify_folder(folder))


def require_version(text: str, *, tensorflow: str, bazel: str) -> None:
    """Raise UnsupportedError if a source folder names another TensorFlow or Bazel: it would fail only after hours."""
    folder = Path(text)
    if not folder.is_dir():
        return
    # Releases up to 2.19.0 have the version in the first file, later ones in the second.
    places = (folder / "tensorflow/tools/pip_package/setup.py", folder / "tensorflow/tf_version.bzl")
    texts = [file.read_text(errors="replace") for file in places if file.is_file()]
    written = next(filter(None, map(_VERSION.search, texts)), None)
    # Upstream's file has a note in its second line.
    named = (folder / ".bazelversion").read_text(errors="replace").partition("\n")[0].strip()
    for what, found, wanted in (
        ("is TensorFlow", written[1] if written else tensorflow, tensorflow),
        ("is built with Bazel", named, bazel),
    ):
        if found != wanted:
            raise UnsupportedError(
                f"{text} {what} {found[:40]}, and TensorFlow {tensorflow} was asked for",
                why=f"{wanted} was expected",
                remedy="give --tensorflow as the tree is, or another tree; `toolkit matrix` has each version's Bazel",
            )


def find_bazel(text: str, image_digest: str = "") -> BuildContext:
    """Return the build context of Bazel: a folder that is copied over the toolchain's root, or ``docker-image://NAME``.

    ``image_digest``: digest of the image, if the engine has it. Raises UsageError: it is neither.
    """
    if text.startswith(IMAGE_SCHEME):
        return BuildContext(location=text, identity=image_digest or text)
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"no Bazel: {text}", remedy=f"give a folder with usr/local/bin/bazel, or {IMAGE_SCHEME}NAME")
    return BuildContext(location=str(folder.resolve()), identity=identify_folder(folder))


def identify_folder(folder: Path) -> str:
    """Return a folder's commit if it is a clean git checkout, else a digest of its files."""
    commit = _ask_git(folder, "rev-parse", "HEAD")
    top = _ask_git(folder, "rev-parse", "--show-toplevel")
    if commit and top and Path(top).resolve() == folder.resolve():
        # Ignored files count too, because the build context contains them.
        changes = _ask_git(folder, "status", "--porcelain", "--ignored", "--untracked-files=normal")
        if changes == "":
            return f"git:{commit}"
    paths = [path for path in folder.iterdir() if path.name != ".git"]
    return digest.digest_paths(folder, paths)


def _ask_git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def _fill(present: Lock, locked: Lock | None) -> Lock:
    if locked is None:
        return present
    return Lock(
        spec=present.spec, pins={name: value or locked.pins.get(name, "") for name, value in present.pins.items()}
    )


def _find_bazel_digest(client: "DockerClient", bazel: str) -> str:
    if not bazel.startswith(IMAGE_SCHEME):
        return ""
    from toolkit.engine.client import find_digest

    # BuildKit pulls a missing image during the build; until then only its name identifies it.
    return find_digest(client, bazel.removeprefix(IMAGE_SCHEME)) or ""
