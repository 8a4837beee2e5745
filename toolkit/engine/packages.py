"""Records which file each package of an environment came from.

An installer's own records name neither the file nor its hash. The lock names all files of a release, and the tags in a
package's metadata say which of them was taken.
"""

import base64
import csv
import io
import os
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from toolkit.base import digest, files
from toolkit.base.errors import BuildError, IntegrityError
from toolkit.engine.uv import Uv
from train.system.files import read_text

FILE: Final = "packages.json"
SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True)
class Recorded:
    version: str
    file: str  # name of the wheel
    digest: str  # of the wheel


@dataclass(frozen=True, kw_only=True)
class Installed:
    version: str
    info: Path


class FileRecord(NamedTuple):
    """What the ``RECORD`` of a package says of a file."""

    digest: str
    size: int | None  # bytes; None if it is not recorded


def write(uv: Uv, folder: Path, locked: Path, wheel: Path | None) -> dict[str, Recorded]:
    """Record the packages of an environment's folder, installed from a locked set and perhaps a wheel of one's own.

    Raises BuildError if uv cannot name the files of the set, or if a package of it is not there, and IntegrityError if
    an installed package is not of these files.
    """
    venv = folder / "venv"
    with tempfile.TemporaryDirectory() as place:
        listing = Path(place, "pylock.toml")
        command = ("pip", "compile", "--quiet", "--no-deps", "--no-header", "--format", "pylock.toml")
        uv.run_locked(*command, "--python", venv / "bin" / "python", "--output-file", listing, locked)
        listed = tomllib.loads(listing.read_text())["packages"]
    recorded = dict(_match(listed, venv))
    if wheel:
        name, version, *_ = wheel.name.split("-")
        recorded[str(canonicalize_name(name))] = Recorded(
            version=version, file=wheel.name, digest=digest.digest_file(wheel)
        )
    save(folder, recorded)
    return recorded


def save(folder: Path, recorded: Mapping[str, Recorded]) -> None:
    value = {"schema": SCHEMA, "packages": {name: asdict(item) for name, item in sorted(recorded.items())}}
    files.write_json(folder / FILE, value)


def _match(listed: Iterable[Mapping[str, Any]], venv: Path) -> Iterator[tuple[str, Recorded]]:
    places = [str(path) for path in venv.glob("lib/python3.*/site-packages")]
    installed = {canonicalize_name(item.name): item for item in metadata.distributions(path=places)}
    for package in listed:
        name, version = canonicalize_name(package["name"]), package["version"]
        there = installed.get(name)
        if there is None or there.version != version:
            raise BuildError(
                f"the new environment lacks {name} {version}",
                why=f"it has {name} {there.version}" if there else "uv ended without an error, and did not install it",
                remedy="run the same command again; if it comes back, please report it",
            )
        yield name, _choose(name, version, package.get("wheels", ()), there.read_text("WHEEL") or "")


def _choose(name: str, version: str, wheels: Iterable[Mapping[str, Any]], text: str) -> Recorded:
    """Return the wheel with the tags of an installed one. ``text``: of its file WHEEL."""
    lines = (line.removeprefix("Tag:").strip() for line in text.splitlines() if line.startswith("Tag:"))
    tags = {tag for line in lines for tag in parse_tag(line)}
    for wheel in wheels:
        place = wheel.get("name") or wheel.get("path") or urlsplit(wheel["url"]).path
        file = unquote(place.rpartition("/")[2])
        if parse_tag("-".join(file.removesuffix(".whl").split("-")[-3:])) == tags:
            return Recorded(version=version, file=file, digest=f"sha256:{wheel['hashes']['sha256']}")
    raise IntegrityError(
        f"the installed {name} is none of the files that the lock names",
        why=f"its tags are {', '.join(sorted(map(str, tags)))}",
        remedy="do not use it: find out which mirror or proxy served it",
    )


def read(folder: Path) -> dict[str, Recorded]:
    """Return what was recorded. Raises IntegrityError if there is no such record, or it is damaged."""
    with suppress(TypeError):
        match files.read_json(folder / FILE):
            case {"schema": 1, "packages": dict(recorded)}:
                return {name: Recorded(**item) for name, item in recorded.items()}
    raise IntegrityError(f"{folder / FILE} is no record of packages", remedy=f"remove the folder {folder}")


def read_installed(venv: Path) -> dict[str, Installed]:
    found: dict[str, Installed] = {}
    for info in sorted(venv.glob("lib/python3.*/site-packages/*.dist-info")):
        metadata = Distribution.at(info).metadata  # parsed anew by each look
        name = str(metadata["Name"] or info.name.partition("-")[0])
        found[canonicalize_name(name)] = Installed(version=str(metadata["Version"]), info=info)
    return found


def read_file_records(folder: Path, installed: Mapping[str, Installed]) -> tuple[dict[str, FileRecord], list[str]]:
    """Return what packages recorded of files, by names below the folder, and the records that cannot be read."""
    recorded: dict[str, FileRecord] = {}
    gone = []
    for package in installed.values():
        place = package.info.parent.relative_to(folder)
        try:
            with io.StringIO(read_text(package.info / "RECORD"), newline="") as file:
                rows = [row for row in csv.reader(file) if len(row) == 3 and row[1].startswith("sha256=")]
        except (OSError, ValueError, csv.Error):
            gone.append(f"{package.info.name}/RECORD")
            continue
        for name, code, size in rows:
            if not name.endswith(".pyc"):
                count = int(size) if size.isdecimal() else None
                recorded[os.path.normpath(place / name)] = FileRecord(_decode(code.removeprefix("sha256=")), count)
    return recorded, gone


def _decode(code: str) -> str:
    """Return a digest that a ``RECORD`` has in URL-safe base64."""
    try:
        return f"sha256:{base64.urlsafe_b64decode(code + '=' * (-len(code) % 4)).hex()}"
    except ValueError:
        return code


def list_changed(records: Mapping[str, FileRecord], digests: Mapping[str, str]) -> list[str]:
    """Return the names of files that are not as the packages recorded them."""
    return sorted(name for name, promised in records.items() if digests.get(name) != promised.digest)


def require_unchanged(folder: Path, digests: Mapping[str, str]) -> None:
    """Raise IntegrityError if a file in the environment of a folder is not as its package recorded it.

    uv checks what it downloads. It does not look again at its cache, which shares files with other environments.
    """
    changed: dict[str, str] = {}  # the package of each file
    for package in read_installed(folder / "venv").values():
        records, unreadable = read_file_records(folder, {"": package})
        wrong = [*unreadable, *list_changed(records, digests)]
        changed |= dict.fromkeys(wrong, package.info.name.partition("-")[0])
    if changed:
        raise IntegrityError(
            f"{len(changed)} of the files in the new environment are not as their packages were published",
            why=f"somebody has written into uv's cache, or into an environment that shares its files: {min(changed)}",
            remedy=f"`uv cache clean {' '.join(sorted(set(changed.values())))}`, and then the same command",
        )
