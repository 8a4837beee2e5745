"""Finds what DATASET names: a known data set, a folder or an archive, or a data set of the Hugging Face Hub.

Files are digested without holding them. Their digests are remembered by size and time of change, so that only changed
files are read again.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from train.errors import DataError, PreflightError, UsageError, explain_unreadable, require_there
from train.system import output
from train.system.files import write_text

HUB: Final = re.compile(r"hf:(?P<repository>[\w.-]+/[\w.-]+)(?P<folder>(/[\w.-]+)*)(@(?P<revision>[\w./-]+))?")
ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz")
HEIF_SUFFIXES: Final = (".heic", ".heif")
"""Ends of the names of images that are read where the package pillow-heif is installed."""

SUFFIXES: Final = frozenset(
    (*(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
     *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
     *(HEIF_SUFFIXES if find_spec("pillow_heif") else ()))
)  # fmt: skip
FOREIGN: Final = frozenset(
    (*("__macosx", "@eadir", "#recycle", "#snapshot", "$recycle.bin", "system volume information", "lost+found"),
     *("thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r"))
)  # fmt: skip
"""Names, in lower case, of folders and files that systems and archivers leave beside the user's own."""

ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
TABLES: Final = (".parquet", ".arrow")
SMALL: Final = 64
"""Largest size of images that get a small network and are shifted, by default; larger ones are cropped at random."""

LARGE: Final = 224
"""Size of images by default, if those of the data are larger than `SMALL` or differ in size."""

CENTER: Final = 0.875
"""Share of an image's shorter side that is looked at after training with random crops (224 of 256 pixels)."""

OWN: Final[Mapping[str, Any]] = {
    "model": "bc-22-12",
    "large": "121",
    "recipe": "quick",
    "epochs": {"quick": 30, "paper": 300, "adam": 30},
    "augment": True,
    "flip": True,
}
"""What ``datasets.yaml`` says about known data sets, for a user's own; `large` is the model of large images."""

RECENT_SECONDS: Final = 2
"""Files that are younger are not remembered: they can change again within one tick of the file system's clock."""

SLOW_BYTES: Final = 10**9


def is_image(name: str) -> bool:
    """Return whether a file is an image by the end of its name."""
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122


def is_foreign(name: str) -> bool:
    """Return whether a path, relative to the folder of a data set, is hidden or left by a system or an archiver."""
    return any(part.startswith(".") or part.lower() in FOREIGN for part in name.split("/") if part)


def refuse_address(text: str) -> None:
    """Raise a UsageError if a text that should be a path is the address of something on a network."""
    if ADDRESS.fullmatch(text) and not Path(text).exists():
        raise UsageError(
            f"{text} is an address, which is not fetched",
            why="images are read from files only",
            remedy="download it, and give the path of the file",
        )


def is_path(text: str) -> bool:
    return not text.startswith("hf:") and ("/" in text or text in {".", ".."} or Path(text).exists())


def name_path(text: str) -> str:
    """Return the name of a data set at a path: the name of the folder or archive, fit to be a part of a file name."""
    name = Path(text).absolute().name if text.endswith((".", "..")) else Path(text).name
    name = Path(os.path.normpath(Path(text).absolute())).name if name in {"", ".", ".."} else name
    for end in (*ARCHIVES, *TABLES):
        name = name.removesuffix(end)
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"


def identify(text: str, data_dir: str, cache_dir: str) -> dict[str, Any]:
    """Return the fields of a configuration that say which data it is: of a path, its name, place and digest.

    With `data_dir`, the path gives only the name. Raises a DataError for files that cannot be read, and a UsageError
    for a text of another form.
    """
    if text.startswith("hf:"):
        if not HUB.fullmatch(text):
            raise UsageError(
                f"not a data set of the Hub: {text!r}", remedy="write it as hf:OWNER/NAME or hf:OWNER/NAME@REVISION"
            )
        return {"dataset": text}
    place = data_dir or text
    refuse_address(place)
    return {"dataset": name_path(text), "data_dir": place, "data_sha256": digest_path(Path(place), Path(cache_dir))}


def digest_path(path: Path, memory: Path) -> str:
    """Return the SHA-256 of an archive, or of the names and contents of a folder's files.

    Raises a UsageError if nothing is there, and a DataError if it cannot be read.
    """
    try:
        path.stat()
    except OSError as error:
        require_there(path, "give the path of a folder of images, or a .zip or .tar of one")
        raise explain_unreadable(path, error) from error
    if path.is_file():
        return digest_files(path.parent, memory, only=path.name)[path.name]
    state = hashlib.sha256()
    for name, digest in digest_files(path, memory).items():
        state.update(os.fsencode(name) + b"\0" + digest.encode() + b"\n")
    return state.hexdigest()


def digest_files(folder: Path, memory: Path, *, only: str = "") -> dict[str, str]:
    """Return the SHA-256 of each file below a folder, by its path in there, or of the one file `only`."""
    file = memory / "digests" / f"{hashlib.sha256(os.fsencode(_name_place(folder))).hexdigest()[:32]}.json"
    earlier: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        earlier = json.loads(file.read_text(encoding="utf-8"))
    names = [only] if only else list_files(folder)
    entries: dict[str, list[Any]] = {}
    stats = {name: (folder / name).stat() for name in names}
    new = [name for name, stat in stats.items() if earlier.get(name, [])[:2] != [stat.st_size, stat.st_mtime_ns]]
    if (size := sum(stats[name].st_size for name in new)) > SLOW_BYTES:
        output.say(f"reading {size / 1e9:.1f} GB in {folder} for their digest")
    for name, stat in stats.items():
        digest = digest_file(folder / name) if name in new else earlier[name][2]
        entries[name] = [stat.st_size, stat.st_mtime_ns, digest]
    limit = time.time_ns() - RECENT_SECONDS * 10**9
    remembered = {name: entry for name, entry in entries.items() if entry[1] < limit}
    if new and remembered:
        with contextlib.suppress(PreflightError):
            write_text(file, json.dumps((earlier if only else {}) | remembered))
    return {name: entry[2] for name, entry in entries.items()}


def _name_place(folder: Path) -> str:
    # A container sees a folder at another path, as the same file of the same device.
    stat = folder.stat()
    return f"{stat.st_dev}:{stat.st_ino}"


def digest_file(path: Path, algorithm: str = "sha256") -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except OSError as error:
        raise explain_unreadable(path, error) from error


def list_files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to it, in the order of their bytes.

    Names that begin with a dot are left out, and so is what is no file, such as a named pipe. Links are followed inside
    of the folder. A link that leads out of it, or to a folder around it, is a DataError.
    """
    return _sort_files(folder)[0]


def list_special(folder: Path) -> list[str]:
    """Return the paths of what `list_files` leaves out because it is no file: named pipes, sockets and devices."""
    return _sort_files(folder)[1]


def _sort_files(folder: Path) -> tuple[list[str], list[str]]:
    outside: list[str] = []
    special: list[str] = []
    try:
        files = sorted(_walk(folder, "", (os.path.realpath(folder),), outside, special), key=os.fsencode)
    except OSError as error:
        raise explain_unreadable(Path(error.filename or folder), error) from error
    if outside:
        raise DataError(
            f"{min(outside)} leads out of {folder}",
            why=f"it is a link to {os.path.realpath(min(outside))}, and a data set reaches only what lies in its own "
            f"folder; {len(outside)} of its links lead out",
            remedy=f"make a copy with files in place of links (cp -rL {folder} COPY), or give a folder that holds both",
        )
    return files, sorted(special, key=os.fsencode)


def lies_inside(path: Path, folder: Path) -> bool:
    """Return whether a path lies inside of a folder after all links are followed.

    In the cache of the Hub's client, files are links into a folder beside those of revisions; it counts as inside.
    """
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    return real.is_relative_to(root) or any(real.is_relative_to(blobs) for blobs in _find_blobs(root))


def _find_blobs(root: Path) -> Iterator[Path]:
    """Yield the folder that the files of a revision are links to, if the root lies in a cache of the Hub's client."""
    for place in root.parents:
        if place.name == "snapshots" and not (place.parent / "blobs").is_symlink():
            yield place.parent / "blobs"


def _walk(folder: Path, prefix: str, above: tuple[str, ...], outside: list[str], special: list[str]) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_symlink() and Path(entry.path).exists() and not lies_inside(Path(entry.path), Path(above[0])):
                outside.append(entry.path)
            elif entry.is_dir():
                real = os.path.realpath(entry.path)
                if real in above:
                    raise DataError(
                        f"{entry.path} leads to a folder that it lies in",
                        why=f"it is a link to {real}, so the images would never end",
                        remedy="remove the link",
                    )
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", (*above, real), outside, special)
            elif entry.is_file():
                yield prefix + entry.name
            elif entry.is_symlink() and not Path(entry.path).exists():
                raise DataError(
                    f"{entry.path} is a link to nothing",
                    why="a container sees only what lies in the folder itself",
                    remedy="remove the link, or replace it by the file",
                )
            else:
                special.append(prefix + entry.name)
