"""Locks a run-time set on demand, by the script that locks those of the repository."""

import os
import re
import subprocess
from pathlib import Path

from toolkit import files, processes, project
from toolkit.errors import BuildError, UsageError
from toolkit.versions import Locked, Table
from toolkit.versions.sets import compose_input

_FOLDER = "docker/requirements"
_DAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
_TAIL_LINES = 12


def make(item: Locked, table: Table, *, day: str, ca_bundle: str = "") -> Path:
    """Resolve a set with hashes, and write it into this clone. A failure or an interrupt leaves nothing behind.

    ``day``: packages that are newer are not taken, ``YYYY-MM-DD``. Raises UsageError: it has another form; BuildError:
    no such set can be resolved, or the index does not answer; PreflightError: the clone is read-only.
    """
    if not _DAY.fullmatch(day):
        raise UsageError(f"not a day: {day!r}", remedy="write it as 2026-11-21")
    script = project.locate(f"{_FOLDER}/lock")
    source = script.with_name(f"{item.requirements}.in")
    files.write_atomically(source, compose_input(table, item))
    trusted = {"PIP_CERT": ca_bundle, "SSL_CERT_FILE": ca_bundle} if ca_bundle else {}
    locked = source.with_suffix(".txt")
    try:
        _run([str(script), "--exclude-newer", day, item.requirements], trusted)
    finally:
        if not locked.exists():
            source.unlink()
    return locked


def _run(command: list[str], variables: dict[str, str]) -> None:
    process = subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        processes.stop(process, grace=10)
        raise
    if process.returncode:
        raise BuildError(
            "the run-time set cannot be locked",
            why="the last lines of the resolver:\n    " + "\n    ".join(said.splitlines()[-_TAIL_LINES:]),
            remedy="look at the package that it names; behind a proxy that re-signs https, give --ca-bundle",
        )
