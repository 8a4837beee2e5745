"""Names, finds and makes the locked run-time sets, files of docker/requirements, also those not in the table."""

import os
import re
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from toolkit.base import files, processes, project
from toolkit.base.errors import BuildError, UsageError
from toolkit.checks.nvidia import find_wheels
from toolkit.versions import numbers
from toolkit.versions.set import Set
from toolkit.versions.table import Locked, Table

_HEAD = {
    False: "# The published CPU wheel of TensorFlow {tensorflow}.\n",
    True: "# The published GPU wheel of TensorFlow {tensorflow}, with the component wheels of one CUDA and cuDNN.\n",
}
_MARKS = ("# >>> pins: written by `make pins` from toolkit/versions/table.yaml", "# <<< pins")
_DAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
_TAIL_LINES = 12


def find_locked(table: Table, asked: Set) -> Locked | None:
    """Return the set of the repository, or the one that `toolkit lock` made; None if there is neither."""
    if asked.tensorflow not in table.tensorflow_rows:
        return None
    locked = describe_set(table, asked)
    there = (project.ROOT / f"docker/requirements/{locked.requirements}.txt").is_file()
    return locked if there and asked.python in locked.python else None


def describe_set(table: Table, asked: Set) -> Locked:
    """Return the description of the set for these versions. It need not exist yet, nor be possible for this Python."""
    oldest = numbers.parse(table.default.python)
    pythons = (version for version in table.tensorflow(asked.tensorflow).python if numbers.parse(version) >= oldest)
    libraries = asked.libraries.named()
    named = "-".join(("cuda" if libraries else "cpu", asked.tensorflow, *libraries.values()))
    made = Locked(tensorflow=asked.tensorflow, python=tuple(pythons), requirements=named, **libraries)
    sets = (item for item in table.published if asked.python in item.python)
    return next((item for item in sets if item.choose(asked.python).named() == asked.named()), made)


def name_components(table: Table, chosen: Set) -> dict[str, str]:
    """Return the version of each wheel of NVIDIA for a CUDA, as far as the table knows it, by the wheel's name."""
    cuda, cudnn = table.cuda_rows.get(chosen.cuda), table.cudnn_rows.get(chosen.cudnn)
    row = table.tensorflow_rows.get(chosen.tensorflow)
    versions = {
        **(cuda.components if cuda else {}),
        "cudnn": cudnn.wheel if cudnn else "",
        "nccl": row.nccl if row else "",
    }
    wheels = find_wheels(chosen.cuda)
    return {wheels[name].package: version for name, version in versions.items() if version and name in wheels}


def list_packages(table: Table, item: Locked) -> list[str]:
    row = table.tensorflow(item.tensorflow)
    if not item.cuda:
        return [
            *(
                f"{place.cpu}=={item.tensorflow} ; platform_machine == '{place.machine}'"
                for place in table.platforms.values()
            ),
            *row.beside,
        ]
    components = name_components(table, item.choose(""))
    return [
        f"tensorflow=={item.tensorflow}",
        *(f"{name}=={version}" for name, version in components.items()),
        *row.beside,
    ]


def compose_input(table: Table, item: Locked) -> str:
    """Return the text of the ``.in`` file from which a set is resolved."""
    lines = [_MARKS[0], *list_packages(table, item), _MARKS[1], "-r train.in"]
    return _HEAD[bool(item.cuda)].format(tensorflow=item.tensorflow) + "\n".join(lines) + "\n"


def lock_set(item: Locked, table: Table, *, day: str, variables: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Resolve a set with hashes, and write it into this clone. A failure or an interrupt leaves nothing behind.

    ``day``: packages that are newer are not taken, ``YYYY-MM-DD``. ``variables``: ``UV`` with the path of uv, and those
    by which uv is told of indexes and certificates. Raises UsageError if the day has another form, BuildError if no
    such set can be resolved or the index does not answer, and PreflightError if the clone is read-only.
    """
    if not _DAY.fullmatch(day):
        raise UsageError(f"not a day: {day!r}", remedy="write it as 2026-11-21")
    script = project.locate("docker/requirements/lock")
    source = script.with_name(f"{item.requirements}.in")
    files.write_atomically(source, compose_input(table, item))
    locked = source.with_suffix(".txt")
    try:
        _resolve([str(script), "--exclude-newer", day, item.requirements], variables)
    finally:
        if not locked.exists():
            source.unlink()
    return locked


def _resolve(command: list[str], variables: Mapping[str, str]) -> None:
    with processes.starting(
        command,
        partial(processes.stop, grace=10),
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        output, _ = process.communicate()
    if process.returncode:
        raise BuildError(
            "the run-time packages cannot be resolved",
            why="the last lines of the resolver:\n    " + "\n    ".join(output.splitlines()[-_TAIL_LINES:]),
            remedy="look at the package that it names; behind a proxy that re-signs https, give --ca-bundle",
        )
