"""Finds what a build takes from this machine and from the version table: sources, downloads, images, and every pin."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit.base import digest, programs
from toolkit.base.errors import EngineError, PreflightError, ToolkitError, UnsupportedError, UsageError
from toolkit.versions import lock
from toolkit.versions.lock import Lock
from toolkit.versions.rules import BuildVersions, choose_versions
from toolkit.versions.settings import Settings, find_own_platform
from toolkit.versions.table import Table, load_table
from train.system.addresses import find_credentials

if TYPE_CHECKING:
    from docker import DockerClient

    from toolkit.engine.bundle import Bundle

IMAGE_SCHEME: Final = "docker-image://"
_DOWNLOADS: Final = ("distdir", "repository_cache")
_VERSION = re.compile(r"^(?:TF)?_VERSION = ['\"]([0-9.]+)", re.MULTILINE)
_REMOTE = re.compile(r"(?:https|ssh|git)://[^#\s]+#(?P<commit>[0-9a-f]{40})")


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    location: str  # value for ``--build-context NAME=``
    identity: str  # content digest, commit, or image digest


@dataclass(frozen=True, kw_only=True)
class BuildInputs:
    """What a build takes from this machine. What affects the wheel has an identity, or is pinned."""

    source: BuildContext | None = None  # replaces the pinned source tree
    bazel: BuildContext | None = None  # replaces the pinned Bazel
    base: str = ""  # the base image with its digest; empty for the name that the lock gives
    stages: Mapping[str, str] = field(default_factory=dict)  # contexts that replace all stages that need a network
    downloads: str = ""  # folder with the files that Bazel would download
    ca_bundle: str = ""  # PEM file for networks that intercept https; it enters no layer


@dataclass(frozen=True, kw_only=True)
class EngineImages:
    base: str  # reference of the base image
    digest: str = ""  # its content digest; empty if no engine answered
    pinned: str = ""  # the reference, with its digest if a registry gave one
    distribution: str = ""  # codename of its Linux distribution; empty if it is unknown
    bazel_digest: str = ""  # content digest of Bazel's image, if Bazel is an image on this machine
    engine: str = ""  # name and version of the engine, or empty
    trouble: ToolkitError | None = None  # why the engine could not be asked; without it nothing can be built

    def describe_base(self) -> dict[str, str]:
        return {"base": self.base, "digest": self.digest, "pinned": self.pinned, "distribution": self.distribution}


def find_source(text: str) -> BuildContext:
    """Return the build context of a source folder or ``URL#COMMIT``. Raises UsageError if the text is neither."""
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
    """Raise UnsupportedError if a source folder names another TensorFlow or Bazel. The build would fail after hours."""
    folder = Path(text)
    if not folder.is_dir():
        return
    # Releases up to 2.19.0 have the version in the first file, later ones in the second.
    places = (folder / "tensorflow/tools/pip_package/setup.py", folder / "tensorflow/tf_version.bzl")
    texts = [file.read_text(errors="replace") for file in places if file.is_file()]
    written = next(filter(None, map(_VERSION.search, texts)), None)
    # Upstream's file has a note in its second line.
    named = (folder / ".bazelversion").read_text(errors="replace").partition("\n")[0].strip()
    for predicate, named_version, wanted in (
        ("is TensorFlow", written[1] if written else tensorflow, tensorflow),
        ("is built with Bazel", named, bazel),
    ):
        if named_version != wanted:
            raise UnsupportedError(
                f"{text} {predicate} {named_version[:40]}, and TensorFlow {tensorflow} was asked for",
                why=f"{wanted} was expected",
                remedy="give --tensorflow as the tree is, or another tree; `toolkit matrix` has each version's Bazel",
            )


def find_bazel(text: str, image_digest: str = "") -> BuildContext:
    """Return the build context of Bazel: a folder that is copied over the toolchain's root, or ``docker-image://NAME``.

    ``image_digest``: digest of the image, if the engine has it. Raises UsageError if the text is neither.
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
        # Ignored files count too, because the build context contains them. So do other repositories within, whose
        # commits say nothing of their files: git would have to look at each by its own configuration.
        changes = _ask_git(
            folder, "status", "--porcelain", "--ignored", "--untracked-files=normal", "--ignore-submodules=all"
        )
        listed = _ask_git(folder, "ls-files", "--stage")
        if changes == "" and listed is not None and not re.search(r"^160000 ", listed, re.MULTILINE):
            return f"git:{commit}"
    paths = [path for path in folder.iterdir() if path.name != ".git"]
    return digest.digest_paths(folder, paths)


def _ask_git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = programs.git(*arguments, folder=folder).run(seconds=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def find_images(settings: Settings, *, bazel: str = "", bundle: "Bundle | None" = None) -> EngineImages:
    """Return the images that a build starts from, with the facts that the engine of this machine knows.

    ``bazel``: the value of --bazel. ``bundle``: images in a folder, which the engine need not have yet.
    """
    from toolkit.engine.client import connect, find_distribution, select_base, translating_errors

    described: dict[str, Any] = {**bundle.base} if bundle else {"base": settings.base_image}
    images = EngineImages(**described)
    if settings.platform != find_own_platform():
        return images  # the engine has the images of its own platform
    try:
        client = connect()
        with translating_errors("reporting its version"):
            images = replace(images, engine=f"docker {client.version()['Version']}")
        if bundle:
            return images
        images = replace(images, bazel_digest=_find_bazel_digest(client, bazel))
        base = select_base(client, settings)
        distribution = find_distribution(client, base, Path(settings.state))
    except (EngineError, PreflightError) as error:
        return replace(images, trouble=error)
    return replace(images, base=base.reference, digest=base.identity, pinned=base.pinned, distribution=distribution)


def find_bundle(settings: Settings) -> "Bundle | None":
    """Return the images and packages in the folder of --downloads, if it has them."""
    if not settings.downloads:
        return None
    from toolkit.engine import bundle  # loads the engine's SDK, which `toolkit build-wheel --dry-run` may not need

    return bundle.read(Path(settings.downloads))


def require_downloads(folder: str) -> None:
    """Raise UsageError if a folder of downloads has none of the folders that Bazel reads."""
    if folder and not any((Path(folder) / name).is_dir() for name in _DOWNLOADS):
        raise UsageError(
            f"--downloads: {folder} has neither of {' and '.join(_DOWNLOADS)}",
            why="everything would be fetched from the network",
            remedy="put archives into distdir by name, or content_addressable of Bazel's repository cache into "
            "repository_cache",
        )


def _find_bazel_digest(client: "DockerClient", bazel: str) -> str:
    if not bazel.startswith(IMAGE_SCHEME):
        return ""
    from toolkit.engine.client import find_digest

    # BuildKit pulls a missing image during the build; until then only its name identifies it.
    return find_digest(client, bazel.removeprefix(IMAGE_SCHEME)) or ""


def choose_wheel_versions(settings: Settings, capabilities: Sequence[str], distribution: str = "") -> BuildVersions:
    """Return the set of versions for these settings.

    ``distribution``: of the base image, for an image whose name does not tell it.
    """
    table = load_table()
    named = table.find_base(settings.base_image)
    if distribution and distribution not in table.bases:
        raise UnsupportedError(
            f"no wheel is built on {settings.base_image}, whose distribution is {distribution}",
            why=f"the packages of its compilers are known for {', '.join(table.bases)}",
            remedy=f"--base-image {table.default.base_image}",
        )
    return choose_versions(
        table,
        settings.versions,
        capabilities=capabilities,
        base=distribution or (named.codename if named else None),
        glibc=settings.glibc,
        for_processor=settings.for_processor,
    )


def collect_pins(
    spec: BuildVersions, table: Table, images: EngineImages, locked: Lock | None, apt_snapshot: str = ""
) -> Lock:
    """Return the present pins.

    The lock adds the day of Debian's archive if none is given, and TensorFlow's commit if the table has none.
    """
    pins = locked.pins if locked else {}
    return lock.collect(
        spec,
        table,
        base_image=images.base,
        base_digest=images.digest,
        apt_snapshot=apt_snapshot or pins.get("apt-snapshot", ""),
        commit=pins.get("tensorflow-commit", ""),
    )
