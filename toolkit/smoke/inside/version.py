"""Version asked = version found, in each of the places that say it."""

import platform
import re
import sys
import time
from importlib import metadata
from pathlib import Path

from . import loading
from .check import TENSORFLOW, Ask, Check, Evidence, Fail


def imports(ask: Ask) -> Evidence:
    """TensorFlow imports; later checks in the same worker build on it."""
    start = time.monotonic()
    try:
        tf = loading.tensorflow()
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
        "version": loading.require(tf, "__version__"),
        "file": str(getattr(tf, "__file__", "")),
        "gpus": [gpu.name for gpu in loading.gpus(tf)] if ask.device != "cpu" else [],
        "import_seconds": round(seconds, 2),
    }


def version(ask: Ask) -> Evidence:
    """The module, the installed distribution and the caller name one version."""
    found = str(loading.require(loading.tensorflow(), "__version__"))
    installed = find_distribution()
    evidence = {"asked": ask.version, "module": found, "distribution": f"{installed.name} {installed.version}"}
    if normalize(found) != normalize(installed.version):
        raise Fail(
            f"the module says {found}, its distribution says {installed.version}",
            remedy="two installations lie over each other: make a fresh environment",
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
    """The wheel was built for this interpreter and this kind of machine (PEP 425 tags)."""
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
    """What TensorFlow's distribution requires is installed, in a version that it accepts (as ``pip check``)."""
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
    """One spelling for ``2.19.0-rc1``, as the module says it, and ``2.19.0rc1``, as PEP 440 does."""
    return re.sub(r"[-_.]?(rc|dev|a|b)[-_.]?(?=\d)", r"\1", text.strip().lower())


def fits(tag: str, interpreter: str, machine: str) -> bool:
    """Whether a tag such as ``cp311-cp311-linux_x86_64`` is for this interpreter and machine."""
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
    """A local suffix (``2.19.0+cuda``) counts only when it was asked for."""
    asked, found = normalize(asked), normalize(found)
    return asked == (found if "+" in asked else found.partition("+")[0])


def find_distribution() -> metadata.Distribution:
    """The one installed distribution that the imported module belongs to."""
    file = Path(str(loading.require(loading.tensorflow(), "__file__"))).resolve()
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


CHECKS = (
    Check(TENSORFLOW, "TensorFlow imports", imports, timeout=180),
    Check("version.tensorflow", "the version asked for is the version installed", version, needs=(TENSORFLOW,)),
    Check("version.wheel", "the wheel is for this Python and this machine", wheel_tags, needs=(TENSORFLOW,)),
    Check("version.dependencies", "what the wheel requires is installed", dependencies, needs=(TENSORFLOW,)),
)
