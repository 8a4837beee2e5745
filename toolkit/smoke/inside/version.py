"""Checks that TensorFlow imports, is the version asked for, and has the files that the wheel installed."""

import base64
import hashlib
import platform
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .check import TENSORFLOW, Ask, Check, Evidence, Fail, find_gpus, load_tensorflow, require_attribute


def imports(ask: Ask) -> Evidence:
    start = time.monotonic()
    try:
        tf = load_tensorflow()
    except ImportError as error:
        lines = str(error).strip().splitlines()
        raise Fail(
            f"import tensorflow: {lines[0] if lines else type(error).__name__}",
            remedy="the missing name says what to install; for a library, see the checks libraries.*",
            interpreter=sys.executable,
            path=sys.path,
        ) from error
    seconds = time.monotonic() - start
    return {
        "version": require_attribute(tf, "__version__"),
        "file": str(getattr(tf, "__file__", "")),
        "gpus": [gpu.name for gpu in find_gpus(tf)] if ask.device != "cpu" else [],
        "import_seconds": round(seconds, 2),
    }


def version(ask: Ask) -> Evidence:
    found = str(require_attribute(load_tensorflow(), "__version__"))
    installed = find_distribution()
    evidence = {"asked": ask.version, "module": found, "distribution": f"{installed.name} {installed.version}"}
    if normalize(found) != normalize(installed.version):
        raise Fail(
            f"the module says {found}, its distribution says {installed.version}",
            remedy="two installations are mixed: make a fresh environment",
            **evidence,
        )
    if ask.version and not _same(ask.version, found):
        raise Fail(
            f"TensorFlow {ask.version} was asked for, {found} is installed",
            remedy="install or build the wheel of that version, or ask for this one",
            **evidence,
        )
    return evidence


def wheel_tags(_ask: Ask) -> Evidence:
    """Check that the wheel was built for this interpreter and this kind of machine (PEP 425 tags)."""
    installed = find_distribution()
    tags = re.findall(r"^Tag: *(\S+)", installed.read_text("WHEEL") or "", re.MULTILINE)
    here = f"cp{sys.version_info.major}{sys.version_info.minor}"
    machine = platform.machine().lower()
    evidence = {"tags": tags, "interpreter": here, "machine": machine, "python": platform.python_version()}
    if not any(fits(tag, here, machine) for tag in tags):
        raise Fail(
            f"no tag of the wheel fits {here} on {machine}: {', '.join(tags) or 'it has none'}",
            remedy="take or build the wheel for this Python",
            **evidence,
        )
    return evidence


def dependencies(_ask: Ask) -> Evidence:
    """Check that what TensorFlow requires is installed, in a version that it accepts (as ``pip check``)."""
    installed = find_distribution()
    needed = [requirement for requirement in installed.requires or [] if "extra ==" not in requirement]
    if not needed:
        return {"requirements": 0}
    try:
        # TensorFlow itself depends on packaging: where it has requirements and this is absent, that is a finding.
        from packaging.requirements import Requirement
    except ImportError as error:
        raise Fail(
            "packaging is not installed, though TensorFlow requires it",
            remedy="install the whole hash-locked set, not the wheel alone",
            requirements=needed,
        ) from error
    wrong: list[str] = []
    count = 0
    for text in needed:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            have = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing (wants {requirement.specifier or 'any'})")
            continue
        if not requirement.specifier.contains(have, prereleases=True):
            wrong.append(f"{requirement.name} {have} is not {requirement.specifier}")
    if wrong:
        raise Fail("; ".join(wrong), remedy="install the hash-locked set again", wrong=wrong)
    return {"requirements": count}


def normalize(text: str) -> str:
    """Return the PEP 440 form ``2.19.0rc1`` of a version such as ``2.19.0-rc1``, as the module has it."""
    return re.sub(r"[-_.]?(rc|dev|a|b)[-_.]?(?=\d)", r"\1", text.strip().lower())


def fits(tag: str, interpreter: str, machine: str) -> bool:
    parts = tag.split("-")
    if len(parts) != 3:
        return False
    python, abi, system = parts
    return (
        (python in {interpreter, "py3"} or (abi == "abi3" and python.startswith("cp3")))
        and abi in {interpreter, "abi3", "none"}
        and (system == "any" or (system.startswith(("linux", "manylinux", "musllinux")) and system.endswith(machine)))
    )


def _same(asked: str, found: str) -> bool:
    """Return whether versions are equal; a local suffix (``2.19.0+cuda``) counts only when it was asked for."""
    asked, found = normalize(asked), normalize(found)
    return asked == (found if "+" in asked else found.partition("+")[0])


def find_distribution() -> metadata.Distribution:
    file = Path(str(require_attribute(load_tensorflow(), "__file__"))).resolve()
    owners = {
        found.name: found
        for found in metadata.distributions()
        if str(found.name).lower().startswith("tensorflow")
        and any(Path(str(found.locate_file(f))).resolve() == file for f in _entries(found, file))
    }
    if len(owners) != 1:
        names = ", ".join(owners) or "none"
        raise Fail(
            f"one installed distribution should own {file}; found: {names}",
            remedy="install exactly one TensorFlow wheel into a fresh environment",
            owners=sorted(owners),
        )
    return next(iter(owners.values()))


def _entries(found: metadata.Distribution, file: Path) -> list[metadata.PackagePath]:
    return [entry for entry in found.files or [] if entry.name == file.name and len(entry.parts) == 2]


_BLOCK = 1 << 20


@dataclass(frozen=True)
class Fingerprint:
    """A file's size in bytes, and its digest in RECORD's notation: URL-safe base64 without padding."""

    size: int
    digest: str


def files(_ask: Ask) -> Evidence:
    installed = find_distribution()
    recorded = [(str(file), file.hash) for file in installed.files or [] if file.hash is not None]
    # hashlib lets other threads run: this is as fast as the disk, or as all processors.
    with ThreadPoolExecutor() as pool:
        fingerprints = list(
            pool.map(lambda item: take_fingerprint(_locate(installed, item[0]), item[1].mode), recorded)
        )
    found = list(zip(recorded, fingerprints, strict=True))
    missing = [name for (name, _), have in found if have is None]
    changed = [name for (name, recorded_hash), have in found if have is not None and have.digest != recorded_hash.value]
    evidence = {
        "files": len(found),
        "bytes": sum(have.size for have in fingerprints if have is not None),
        "missing": missing[:20],
        "changed": changed[:20],
    }
    if missing or changed:
        raise Fail(
            f"{len(missing)} files missing, {len(changed)} changed since installation: {(missing + changed)[0]}, …",
            remedy="install the wheel again; if it comes back, suspect the disk, or another program that writes there",
            **evidence,
        )
    if not found:
        raise Fail(f"{installed.name} has no RECORD of its files", remedy="install it from a wheel", **evidence)
    return evidence


def find_recorded_hash(package: str, file: Path) -> metadata.FileHash | None:
    try:
        installed = metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return None
    for entry in installed.files or []:
        if entry.name == file.name and _locate(installed, str(entry)).resolve() == file.resolve():
            return entry.hash
    return None


def take_fingerprint(path: Path, algorithm: str) -> Fingerprint | None:
    digest = hashlib.new(algorithm)
    size = 0
    try:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                size += len(block)
    except OSError:
        return None
    return Fingerprint(size, base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode())


def _locate(installed: metadata.Distribution, name: str) -> Path:
    return Path(str(installed.locate_file(name)))


CHECKS = (
    # A processor that lacks an instruction kills the import without a word.
    Check(TENSORFLOW, "TensorFlow imports", imports, timeout=180, needs=("cpu.instructions",)),
    Check("version.tensorflow", "the version asked for is the version installed", version, needs=(TENSORFLOW,)),
    Check("version.wheel", "the wheel is for this Python and this machine", wheel_tags, needs=(TENSORFLOW,)),
    Check("version.dependencies", "what the wheel requires is installed", dependencies, needs=(TENSORFLOW,)),
    Check("version.files", "the installed files are the wheel's", files, timeout=300, needs=(TENSORFLOW,)),
)
