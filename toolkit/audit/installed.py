"""The packages in a virtual environment, and whether their files still are those that were installed."""

import base64
import csv
import hashlib
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

from packaging.utils import canonicalize_name

BROUGHT = frozenset({"pip", "setuptools"})
"""What ``python -m venv`` puts there itself."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """One package.

    Attributes:
        version: as it says.
        info: its ``.dist-info`` folder.
    """

    version: str
    info: Path


def read_packages(venv: Path) -> dict[str, Installed]:
    """The packages of an environment, by their normalized names."""
    found: dict[str, Installed] = {}
    for info in sorted(venv.glob("lib/python3.*/site-packages/*.dist-info")):
        distribution = Distribution.at(info)
        found[canonicalize_name(distribution.metadata["Name"])] = Installed(version=distribution.version, info=info)
    return found


def find_changed(package: Installed) -> tuple[int, list[str]]:
    """How many files of a package were compared with its ``RECORD``, and those that are changed or gone.

    The record itself has no hash (https://packaging.python.org/en/latest/specifications/recording-installed-packages/),
    and pip compiles Python's files anew, also those that a wheel brings compiled.
    """
    try:
        with (package.info / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 3 and row[1].startswith("sha256=")]
            rows = [row for row in rows if not row[0].endswith(".pyc")]
    except OSError:
        return 0, [f"{package.info.name}/RECORD"]
    changed = [name for name, code, _ in rows if _digest(package.info.parent / name) != code.removeprefix("sha256=")]
    return len(rows), changed


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            value = hashlib.file_digest(stream, "sha256").digest()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
