"""The hashes that a wheel's RECORD promised for its files, against the files (PEP 376, PEP 427)."""

import base64
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .check import TENSORFLOW, Ask, Check, Evidence, Fail
from .version import find_distribution

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Measure:
    """A file's size in bytes, and its digest in RECORD's notation: URL-safe base64 without padding."""

    size: int
    digest: str


def files(_ask: Ask) -> Evidence:
    """Every file of TensorFlow's distribution has the hash that its RECORD promised."""
    installed = find_distribution()
    recorded = [(str(file), file.hash) for file in installed.files or [] if file.hash is not None]
    # hashlib lets other threads run: this is as fast as the disk, or as all processors.
    with ThreadPoolExecutor() as pool:
        measures = list(pool.map(lambda item: measure(_locate(installed, item[0]), item[1].mode), recorded))
    found = list(zip(recorded, measures, strict=True))
    missing = [name for (name, _), have in found if have is None]
    changed = [name for (name, promised), have in found if have is not None and have.digest != promised.value]
    evidence = {
        "files": len(found),
        "bytes": sum(have.size for have in measures if have is not None),
        "missing": missing[:20],
        "changed": changed[:20],
    }
    if missing or changed:
        raise Fail(
            f"{len(missing)} files missing, {len(changed)} changed since installation: {(missing + changed)[0]}, …",
            remedy="install the wheel again; if it comes back, suspect the disk or whoever writes there",
            **evidence,
        )
    if not found:
        raise Fail(f"{installed.name} has no RECORD of its files", remedy="install it from a wheel", **evidence)
    return evidence


def find_promise(package: str, file: Path) -> metadata.FileHash | None:
    """What an installed package's RECORD says of a file, or None where it says nothing."""
    try:
        installed = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    for entry in installed.files or []:
        if entry.name == file.name and _locate(installed, str(entry)).resolve() == file.resolve():
            return entry.hash
    return None


def measure(path: Path, algorithm: str) -> Measure | None:
    """Size and digest of a file, None when it cannot be read."""
    digest = hashlib.new(algorithm)
    size = 0
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError:
        return None
    return Measure(size, base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode())


def _locate(installed: metadata.Distribution, name: str) -> Path:
    return Path(str(installed.locate_file(name)))


CHECKS = (Check("version.files", "the installed files are the wheel's", files, timeout=300, needs=(TENSORFLOW,)),)
