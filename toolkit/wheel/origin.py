"""Where the sources and Bazel come from, when not from the pins: a folder, a commit elsewhere, an image.

Each gets an identity by content, so that a plan knows whether it is up to date.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from toolkit import digest
from toolkit.errors import UnsupportedError, UsageError

IMAGE_SCHEME = "docker-image://"
_VERSION = re.compile(r"^(?:TF)?_VERSION = ['\"]([0-9.]+)", re.MULTILINE)
_REMOTE = re.compile(r"(?:https|ssh|git)://[^#\s]+#(?P<commit>[0-9a-f]{40})")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A named context that replaces a stage.

    Attributes:
        context: what ``--build-context NAME=`` gets.
        identity: content digest, commit, or image digest.
    """

    context: str
    identity: str


def find_source(text: str) -> Origin:
    """TensorFlow's source tree: a folder, or ``URL#COMMIT``.

    Raises:
        UsageError: it is neither, or the folder is no source tree with a Bazel version.
    """
    match = _REMOTE.fullmatch(text)
    if match:
        return Origin(context=text, identity=f"git:{match['commit']}")
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
    return Origin(context=str(folder.resolve()), identity=identify_folder(folder))


def require_version(text: str, *, tensorflow: str, bazel: str) -> None:
    """Refuse a folder that says it is of another version than the one asked for: else that comes out after hours.

    Args:
        text: what the user gave; of a repository elsewhere nothing is known yet.
        tensorflow: version of TensorFlow that is wanted.
        bazel: version of Bazel that it is built with.

    Raises:
        UnsupportedError: the tree names another Bazel, or another version of itself.
    """
    folder = Path(text)
    if not folder.is_dir():
        return
    # The version is in the first file up to 2.19.0, in the second later.
    files = (folder / "tensorflow/tools/pip_package/setup.py", folder / "tensorflow/tf_version.bzl")
    texts = [file.read_text(errors="replace") for file in files if file.is_file()]
    written = next(filter(None, map(_VERSION.search, texts)), None)
    named = (folder / ".bazelversion").read_text(errors="replace").strip()
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


def find_bazel(text: str, image_digest: str = "") -> Origin:
    """Bazel as a folder that is laid over the toolchain's root, or as ``docker-image://NAME``.

    Args:
        text: what the user gave.
        image_digest: digest of the image as the engine knows it, where it is one.

    Raises:
        UsageError: it is neither.
    """
    if text.startswith(IMAGE_SCHEME):
        return Origin(context=text, identity=image_digest or text)
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"no Bazel: {text}", remedy=f"give a folder with usr/local/bin/bazel, or {IMAGE_SCHEME}NAME")
    return Origin(context=str(folder.resolve()), identity=identify_folder(folder))


def identify_folder(folder: Path) -> str:
    """Content identity of a folder: its commit where git vouches for all of it, else a digest of its files."""
    commit = _ask_git(folder, "rev-parse", "HEAD")
    top = _ask_git(folder, "rev-parse", "--show-toplevel")
    if commit and top and Path(top).resolve() == folder.resolve():
        # Ignored files count too: they travel into the build with the rest.
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
