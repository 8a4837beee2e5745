"""Records which file each package of an environment came from.

An installer's own records name neither the file nor its hash. The lock names all files of a release, and the tags in a
package's metadata say which of them was taken.
"""

import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name

from toolkit.base import digest, files
from toolkit.base.errors import BuildError, IntegrityError
from toolkit.engine.uv import Uv

FILE: Final = "packages.json"
SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True)
class Recorded:
    version: str
    file: str  # name of the wheel
    digest: str  # of the wheel


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
