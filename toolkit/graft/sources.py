"""Downloads what a graft starts from, by the hashes of the locked sets: the published wheel, and ptxas.

pip does this, because a graft needs the wheel itself: uv 0.13 has no command that downloads one, and keeps in its cache
only what it has unpacked. A client of our own would have to read again what pip knows of passwords and proxies.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from toolkit import diagnosis
from toolkit.base import digest, files, processes, programs
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, IntegrityError, PreflightError

_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux2010", "manylinux_2_12")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_TAIL_LINES = 8


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """A package of a locked set: its version, and the hashes of its files for all Pythons."""

    name: str
    entry: str  # as in the set

    @property
    def digests(self) -> frozenset[str]:
        return frozenset(f"sha256:{value}" for value in _HASH.findall(self.entry))

    @property
    def digest(self) -> str:
        """The digest of name, version and hashes."""
        return digest.digest_value([self.entry.split()[0], sorted(self.digests)])


def select(locked: Path, name: str) -> LockedPackage:
    """Return a package of a locked set, whose name may end with a CUDA. Raises BuildError if it is not there."""
    found = re.search(rf"(?m)^({re.escape(name)}(?:-cu\d+)?)==.*\n(?:[ \t].*\n)*", locked.read_text())
    if found is None:
        raise BuildError(f"{locked.name} does not hold {name}", remedy="make the set again: toolkit lock")
    return LockedPackage(name=found[1], entry=found[0])


def fetch(package: LockedPackage, python: str, cache: Path, *, ca_bundle: str, console: Console) -> Path:
    """Return the wheel of a locked package for a Python. It is downloaded unless the cache has it already.

    Raises IntegrityError if a file does not have one of the hashes, BuildError if pip fails, and PreflightError if
    there is no pip or the cache cannot be written.
    """
    folder = cache / f"{package.name}-{python}-{digest.shorten(package.digest)}"
    for path in folder.glob("*.whl"):
        if digest.digest_file(path) in package.digests:
            return path
    shutil.rmtree(folder, ignore_errors=True)
    files.require_writable(cache)
    with files.stage(cache, digest.shorten(package.digest)) as staging:
        requirements = staging.path / "requirements.txt"
        requirements.write_text(package.entry)
        result = staging.path / "wheel"
        with console.timed("download", package.entry.split()[0]):
            _download(_list_command(requirements, result, python, ca_bundle))
        requirements.unlink()
        wheel = next(iter(result.glob("*.whl")), None)
        if wheel is None or digest.digest_file(wheel) not in package.digests:
            raise processes.describe_wrong_package(f"pip gave {wheel.name if wheel else 'no wheel'}")
        result.replace(folder)
    return folder / wheel.name


def _list_command(requirements: Path, target: Path, python: str, ca_bundle: str) -> list[str]:
    argv = ["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    argv += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", python]
    argv += ["--implementation", "cp"]
    argv += [part for name in _PLATFORMS for part in ("--platform", f"{name}_x86_64")]
    argv += ["--cert", ca_bundle] if ca_bundle else []
    return [*argv, "--dest", str(target), "--requirement", str(requirements)]


def _download(argv: list[str]) -> None:
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    program = programs.python(*argv)
    stop = partial(processes.stop, grace=10)
    with processes.starting(program.argv, stop, env=program.variables, **streams) as process:
        output, _ = process.communicate()
    if not process.returncode:
        return
    if processes.OTHER_BYTES.search(output):
        raise processes.describe_wrong_package(output.strip()[-500:])
    if processes.DISK_FULL.search(output):
        raise processes.describe_full_disk("filled up while downloading")
    if "No module named pip" in output:
        raise PreflightError(
            "this Python has no pip",
            why=sys.executable,
            remedy=f"{sys.executable} -m ensurepip, or install python3-pip",
        )
    lines = "\n    ".join(output.strip().splitlines()[-_TAIL_LINES:])
    remedy = f"run the same command again\n{diagnosis.name_cause(output)}".strip()
    raise BuildError("the download failed", why=f"pip's last lines:\n    {lines}", remedy=remedy)


def unpack_ptxas(wheel: Path, cache: Path) -> Path:
    """Return ptxas out of its wheel, whose hash was checked. Raises IntegrityError if the wheel has none."""
    target = cache / f"ptxas-{digest.shorten(digest.digest_file(wheel))}"
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(next(name for name in archive.namelist() if name.endswith("/bin/ptxas")))
    except (StopIteration, OSError, zipfile.BadZipFile) as error:
        raise IntegrityError(f"{wheel.name} has no ptxas", why=str(error), remedy="remove it and try again") from error
    if not target.exists() or target.read_bytes() != content:
        files.write_atomically(target, content)
    files.set_mode(target, 0o755)
    return target
