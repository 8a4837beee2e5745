"""Reads and writes ``toolkit.lock.yaml``: every pin of a build. An unknown pin stays empty."""

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolkit.base import digest, files, programs, project
from toolkit.base.errors import CheckError, UsageError
from toolkit.versions.rules import BuildVersions, choose_versions
from toolkit.versions.set import FIRST_PLATFORM, Set
from toolkit.versions.table import Table, load_table
from train.system.files import read_regular

FILE = "toolkit.lock.yaml"
DEFAULT_FILE = "docker/toolkit.lock.yaml"
"""The lock of the table's default set, written by `make pins`. A build reads :data:`FILE`."""

SCHEMA = 1
REDIST = "-redist-sha256"
"""How the pin of NVIDIA's JSON of a library's release ends."""

SYSROOT = "sysroot"
"""The locked set that an older C library is made from."""

REPOSITORY = "https://github.com/tensorflow/tensorflow.git"
ASK_SECONDS = 20

REMEDIES = {
    "base-digest": "run `toolkit lock` where a container engine has the base image or can pull it",
    "apt-snapshot": "--apt-snapshot YYYYMMDDT000000Z chooses a day of Debian's snapshot archive",
    "tensorflow-commit": f"`git ls-remote {REPOSITORY} TAG` names it where the network reaches it",
    "bazel-sha256": "the version table has no hash of this Bazel",
    "bazel": "its image is not on this machine: `docker pull` it, so that it is known by its digest",
}
"""How to fill an empty pin."""

_SNAPSHOT = re.compile(r"20[0-9]{6}T[0-9]{6}Z")
_HEAD = "# Every pin of the chain, written by `toolkit lock`; an empty one is floating. Do not edit: lock again.\n"


@dataclass(frozen=True, kw_only=True)
class Lock:
    spec: Mapping[str, str]  # versions by name; capabilities as one text, separated by commas
    pins: Mapping[str, str]  # value of each pin by name; empty if it is floating
    # digests of locked sets, by file: those of images without this wheel
    sets: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> Set:
        return Set.of({"platform": FIRST_PLATFORM, **self.spec})

    @property
    def floating(self) -> tuple[str, ...]:
        return tuple(name for name, value in self.pins.items() if not value)

    @property
    def level(self) -> str:
        return rank(self.floating)

    @property
    def digest(self) -> str:
        return digest.digest_value(self.describe())

    def describe(self) -> dict[str, Any]:
        sets = {"sets": dict(self.sets)} if self.sets else {}
        return {"schema": SCHEMA, "spec": dict(self.spec), "pins": dict(self.pins), **sets}


def rank(floating: Collection[str]) -> str:
    return "below R0" if floating else "R0"


def collect(
    spec: BuildVersions,
    table: Table,
    *,
    base_image: str,
    base_digest: str = "",
    apt_snapshot: str = "",
    commit: str = "",
) -> Lock:
    """Return the lock of a set of versions, by the arguments, the table and this clone's files.

    ``base_digest``: content digest of the base image, or empty. ``commit``: commit of TensorFlow, used if the table has
    none. Raises UsageError if ``apt_snapshot``, a day of Debian's archive, is not ``YYYYMMDDTHHMMSSZ``.
    """
    if apt_snapshot and not _SNAPSHOT.fullmatch(apt_snapshot):
        raise UsageError(f"not a snapshot's day: {apt_snapshot!r}", remedy="write it as 20261121T000000Z")
    row = table.tensorflow(spec.tensorflow)
    pins = {
        "base-image": base_image,
        "base-digest": base_digest,
        "apt-snapshot": apt_snapshot,
        "tensorflow-commit": row.commit or commit,
        "bazel-sha256": table.bazel_rows[spec.bazel].sha256.get(table.platform(spec.platform).bazel, ""),
        **{f"{name}{REDIST}": table.libraries[name][value].redist for name, value in spec.libraries.named().items()},
        "source-date-epoch": str(row.source_date_epoch or table.default.source_date_epoch),
        "recipe": digest.digest_paths(project.ROOT, [project.locate(name) for name in RECIPE]),
    }
    if row.tarball_sha256:
        pins["tensorflow-tarball-sha256"] = row.tarball_sha256
    for path in [*_find_patches(spec), *_find_requirements(spec, table)]:
        pins[path.relative_to(project.ROOT).as_posix()] = digest.digest_file(path)
    versions = {
        **spec.named(),
        **({"capabilities": ",".join(spec.capabilities)} if spec.cuda else {}),
        "bazel": spec.bazel,
        "clang": spec.clang,
        "gcc": spec.gcc,
        "platform": spec.platform,
        **({"glibc": spec.glibc} if spec.glibc else {}),
    }
    return Lock(spec=versions, pins=pins)


def collect_default() -> Lock:
    table = load_table()
    return collect(choose_versions(table), table, base_image=table.default.base_image)


RECIPE = ("docker/Dockerfile", "docker/scripts", "toolkit/checks/gpu_rules.py", "train/cores.py")
"""The files that turn pins into a wheel."""


def ask_commit(version: str) -> str:
    """Return the commit of a version's tag in TensorFlow's repository; empty if the repository does not answer."""
    tag = f"refs/tags/v{version}"
    try:
        answer = programs.git("ls-remote", "--exit-code", REPOSITORY, tag).run(seconds=ASK_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.fullmatch(rf"([0-9a-f]{{40}})\t{re.escape(tag)}\n", answer.stdout)
    return match[1] if match else ""


def write(path: Path, lock: Lock) -> None:
    files.write_atomically(path, _HEAD + yaml.safe_dump(lock.describe(), sort_keys=False, width=120))


def read(path: Path) -> Lock | None:
    """Return the lock in a file, or None if the file is missing. Raises UsageError if it is no lock of this schema."""
    try:
        value = yaml.safe_load(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read {path}", why=str(error), remedy="write it again: toolkit lock") from error
    match value:
        case {"schema": 1, "spec": dict(spec), "pins": dict(pins), **rest} if _is_text(spec) and _is_text(pins):
            sets = rest.get("sets", {})
            if value["schema"] is not True and isinstance(sets, dict) and _is_text(sets):
                return Lock(spec=spec, pins=pins, sets=sets)
    raise UsageError(f"{path} is not a lock of schema {SCHEMA}", remedy="write it again: toolkit lock")


def compare(locked: Lock, present: Lock) -> list[str]:
    """Return a line for each difference between a lock and the present pins. Pins that are unknown now are skipped."""
    changes = []
    for label, old, new in (("spec", locked.spec, present.spec), ("pin", locked.pins, present.pins)):
        for name in [*old, *(name for name in new if name not in old)]:
            before, after = old.get(name), new.get(name)
            if before != after and (after or name not in REMEDIES):
                changes.append(f"{label} {name}: locked {before or 'nothing'}, now {after or 'nothing'}")
    return [*changes, *(f"set {line}" for line in _compare_sets(locked.sets))]


def name_set(requirements: str) -> dict[str, str]:
    name = f"docker/requirements/{requirements}.txt"
    return {name: digest.digest_file(project.locate(name))}


def _compare_sets(sets: Mapping[str, str]) -> Iterable[str]:
    for name, before in sets.items():
        path = project.ROOT / name
        now = digest.digest_file(path) if path.is_file() else "nothing"
        if now != before:
            yield f"{name}: locked {before}, now {now}"


def require_fit(locked: Lock, present: Lock) -> None:
    changes = compare(locked, present)
    if changes:
        raise CheckError(
            f"{FILE} no longer fits",
            why="; ".join(changes),
            remedy="look at what changed, then write it again: toolkit lock",
        )


def describe_pinning(floating: Collection[str]) -> str:
    """Return in words whether every input is pinned. ``floating``: the names of those that are not."""
    return f"not every input is pinned: {', '.join(floating)}" if floating else "every input is pinned"


def describe_floating(names: Iterable[str]) -> list[str]:
    """Return a line for each input that is not pinned, which says how to pin it."""
    return [f"{name} is not pinned: {REMEDIES.get(name, 'lock again')}" for name in names]


def _find_patches(spec: BuildVersions) -> list[Path]:
    both = f"{spec.tensorflow}-{spec.cuda}"
    folders = (f"headers/clang-{spec.clang}", f"kernels/{both}", f"tensorflow/{spec.tensorflow}", f"tensorflow/{both}")
    return [path for folder in folders for path in _list_series(folder)]


def _list_series(folder: str) -> list[Path]:
    """Return the series in a folder of ``bazel_patches`` and the patches that it names; none without a series."""
    root = project.locate("bazel_patches") / folder
    if not (root / "series").exists():
        return []
    lines = (line.partition("#")[0].strip() for line in (root / "series").read_text().splitlines())
    return sorted({root / "series", *((root / line).resolve() for line in lines if line)})


def _find_requirements(spec: BuildVersions, table: Table) -> list[Path]:
    parts = table.cuda_rows[spec.cuda].parts if spec.cuda else ""
    names = ["uv", parts, spec.requirements, SYSROOT if spec.glibc else ""]
    return [project.locate(f"docker/requirements/{name}.txt") for name in names if name]


def _is_text(table: dict[Any, Any]) -> bool:
    return all(isinstance(item, str) for pair in table.items() for item in pair)


if __name__ == "__main__":
    write(project.ROOT / DEFAULT_FILE, collect_default())
