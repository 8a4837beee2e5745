"""Keeps log and event file of each run in the cache mount, where they can be read after the step has failed."""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

UNNAMED = "unnamed"
KEPT = 3
"""Folders of runs that are kept, the present one included. Builds of one cache mount run one after the other."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LEAKS = ("command.log", "java.log*", "java_pid*.hprof", "server/cmdline")
"""Files of Bazel's output base that may hold the values of rc files: an earlier run may have left them."""


@dataclass(frozen=True, kw_only=True)
class Journal:
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "build.log"

    @property
    def events(self) -> Path:
        return self.folder / "events.json"

    def write_events(self, raw: Path, redact: Callable[[str], str]) -> None:
        if raw.exists():
            with raw.open(errors="replace") as lines, self.events.open("w") as clean:
                clean.writelines(redact(line) for line in lines)


def read_run(secret: Path, environment: Mapping[str, str]) -> str:
    """Return the run's name, from the secret ``run`` or ``RUN_ID``. Raises ValueError: it cannot name a folder."""
    name = secret.read_text().strip() if secret.is_file() else environment.get("RUN_ID", "")
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"RUN_ID must be letters, digits, dots and dashes, not {name!r}")
    return name or UNNAMED


def open_journal(folder: Path, run: str) -> Journal:
    """Begin the journal of a run, empty; removes the oldest others, and files that do not belong to any run."""
    journal = Journal(folder=folder / run)
    shutil.rmtree(journal.folder, ignore_errors=True)
    journal.folder.mkdir(parents=True)
    others = [path for path in folder.iterdir() if path != journal.folder]
    for path in others:
        if not path.is_dir():
            path.unlink()
    folders = sorted((path for path in others if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in folders[: -(KEPT - 1)]:
        shutil.rmtree(path, ignore_errors=True)
    return journal


def remove_leaks(root: Path) -> None:
    """Remove files below ``--output_user_root`` in which an earlier server may have kept the values of rc files."""
    for pattern in _LEAKS:
        for path in root.glob(f"*/{pattern}"):
            path.unlink(missing_ok=True)
