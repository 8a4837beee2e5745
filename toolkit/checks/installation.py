"""Checks that TensorFlow imports, is the version asked for, has its files, and was built for what was asked."""

import base64
import csv
import hashlib
import platform
import re
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .check import (
    TENSORFLOW,
    Check,
    Evidence,
    Expectation,
    Fail,
    Skip,
    find_gpus,
    find_remedy,
    load_tensorflow,
    refer,
    require_attribute,
)
from .gpu_rules import compare_cuda, compare_cudnn, find_coverage, read_numbers


def imports(expectation: Expectation) -> Evidence:
    start = time.monotonic()
    try:
        tf = load_tensorflow()
    except Exception as error:
        # NumPy, protobuf and ml_dtypes of a version that does not fit raise errors of many classes.
        lines = str(error).strip().splitlines()
        first = lines[0][:300] if lines else ""
        missing = isinstance(error, ImportError) and first
        wrong = _compare_installed()
        said = f"import tensorflow: {first if missing else f'{type(error).__name__}: {first}'}"
        remedy = "a package that TensorFlow imports does not fit it: install the hash-locked set in a new environment"
        if wrong:
            remedy = "install the versions that TensorFlow requires, in a new environment"
        elif isinstance(error, ModuleNotFoundError) and error.name == "tensorflow":
            remedy = find_remedy("tensorflow-missing")
        elif missing:
            remedy = "the missing name says what to install; for a library, see the checks libraries.*"
        raise Fail(
            "; ".join([said, *wrong]),
            remedy=remedy,
            interpreter=sys.executable,
            path=sys.path,
            traceback=traceback.format_exception(error)[-3:],
        ) from error
    seconds = time.monotonic() - start
    return {
        "version": require_attribute(tf, "__version__"),
        "file": str(getattr(tf, "__file__", "")),
        "gpus": [gpu.name for gpu in find_gpus(tf)] if expectation.device != "cpu" else [],
        "import_seconds": round(seconds, 2),
    }


def version(expectation: Expectation) -> Evidence:
    found = str(require_attribute(load_tensorflow(), "__version__"))
    installed = find_distribution()
    evidence = {"asked": expectation.version, "module": found, "distribution": f"{installed.name} {installed.version}"}
    # A graft adds a local part to the version of the distribution alone.
    if normalize(found) not in {normalize(installed.version), normalize(installed.version).partition("+")[0]}:
        raise Fail(
            f"the module says {found}, its distribution says {installed.version}",
            remedy="two installations are mixed: make a fresh environment",
            **evidence,
        )
    if expectation.version and not _same(expectation.version, found):
        raise Fail(
            f"TensorFlow {expectation.version} was asked for, {found} is installed",
            remedy="install or build the wheel of that version, or ask for this one",
            **evidence,
        )
    return evidence


def wheel_tags(_ask: Expectation) -> Evidence:
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


def dependencies(_ask: Expectation) -> Evidence:
    """Check that what TensorFlow requires is installed, in a version that it accepts (as ``pip check``)."""
    installed = find_distribution()
    needed = _list_requirements(installed)
    if not needed:
        return {"requirements": 0}
    try:
        # TensorFlow itself depends on packaging: where it has requirements and this is absent, that is a finding.
        count, wrong = _compare_requirements(needed)
    except ImportError as error:
        raise Fail(
            "packaging is not installed, though TensorFlow requires it",
            remedy="install the whole hash-locked set, not the wheel alone",
            requirements=needed,
        ) from error
    if wrong:
        raise Fail("; ".join(wrong), remedy="install the hash-locked set again", wrong=wrong)
    return {"requirements": count}


def _compare_installed() -> list[str]:
    """Return what the installed TensorFlow requires and does not have, without importing it."""
    for found in metadata.distributions():
        if str(found.name).lower().startswith("tensorflow") and _entries(found, Path("tensorflow/__init__.py")):
            try:
                return _compare_requirements(_list_requirements(found))[1]
            except ImportError:
                return []
    return []


def _list_requirements(installed: metadata.Distribution) -> list[str]:
    return [requirement for requirement in installed.requires or [] if "extra ==" not in requirement]


def _compare_requirements(needed: list[str]) -> tuple[int, list[str]]:
    """Return how many requirements hold here, and those that are not met. Raises ImportError without `packaging`."""
    from packaging.requirements import Requirement

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
    return count, wrong


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
            remedy=find_remedy("tensorflow-twice")
            if len(owners) > 1
            else "install TensorFlow by pip or uv in a new environment",
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


def files(_ask: Expectation) -> Evidence:
    installed = find_distribution()
    # Not `installed.files`: from Python 3.12 on, it leaves out the files that are missing.
    rows = csv.reader((installed.read_text("RECORD") or "").splitlines())
    recorded = [(row[0], *row[1].split("=", 1)) for row in rows if len(row) > 1 and "=" in row[1]]
    # hashlib lets other threads run: this is as fast as the disk, or as all processors.
    with ThreadPoolExecutor() as pool:
        fingerprints = list(pool.map(lambda item: take_fingerprint(_locate(installed, item[0]), item[1]), recorded))
    found = list(zip(recorded, fingerprints, strict=True))
    missing = [name for (name, *_), have in found if have is None]
    changed = [name for (name, _, promised), have in found if have is not None and have.digest != promised]
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


def apart(_ask: Expectation) -> Evidence:
    """Check that no two packages record other bytes for one library, as those of CUDA 12 and 13 do.

    The one that was installed last has overwritten the other, and whoever needs that one fails to load.
    """
    owners: dict[str, tuple[str, str]] = {}
    shared = []
    for found in metadata.distributions():
        for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
            if len(row) == 3 and ".so" in row[0] and row[1]:
                name, recorded = owners.setdefault(row[0], (found.name, row[1]))
                if recorded != row[1]:
                    shared.append(f"{row[0]} is of {name} and of {found.name}")
    if shared:
        raise Fail(
            f"{shared[0]}, with other bytes" + (f", and {len(shared) - 1} more" if len(shared) > 1 else ""),
            remedy=find_remedy("packages-overlap"),
            shared=shared[:20],
        )
    return {"libraries": len(owners)}


def compare_with_record(file: Path) -> tuple[str, str]:
    """Return the package of NVIDIA that installed a file, and whether the file is ``equal`` to its record."""
    for found in metadata.distributions():
        for entry in (found.files or []) if str(found.name).lower().startswith("nvidia") else []:
            if entry.name == file.name and entry.hash and _locate(found, str(entry)).resolve() == file.resolve():
                have = take_fingerprint(file, entry.hash.mode)
                return found.name, "equal" if have and have.digest == entry.hash.value else "different"
    return "", "none: not from a wheel"


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


LOCAL_REMEDY = "build a wheel for it: toolkit build-wheel"


def read_build_info() -> dict[str, Any]:
    return dict(require_attribute(load_tensorflow(), "sysconfig.get_build_info")())


def require_cuda(expectation: Expectation) -> dict[str, Any]:
    """Return the build info of a CUDA build. Raises Fail if CUDA, a capability or a GPU was asked for, else Skip."""
    built = read_build_info()
    if built.get("is_cuda_build"):
        return built
    if expectation.cuda or expectation.cudnn or expectation.capability or expectation.device == "gpu":
        raise Fail("this TensorFlow was built without CUDA", remedy=find_remedy("built-without-cuda"), build=built)
    raise Skip("this TensorFlow was built without CUDA, and none was asked for")


def build_info(expectation: Expectation) -> Evidence:
    built = read_build_info()
    evidence = {"build": built}
    says = bool(require_attribute(load_tensorflow(), "test.is_built_with_cuda")())
    if says != bool(built.get("is_cuda_build")):
        raise Fail(
            f"build info says is_cuda_build={built.get('is_cuda_build')}, tf.test.is_built_with_cuda() says {says}",
            remedy="files of two builds are mixed: make a fresh environment",
            **evidence,
        )
    if (expectation.cuda or expectation.cudnn or expectation.device == "gpu") and not says:
        raise Fail(
            "CUDA was asked for, this TensorFlow was built without it",
            remedy=find_remedy("built-without-cuda"),
            **evidence,
        )
    return evidence


def build_cuda(expectation: Expectation) -> Evidence:
    """Check that the CUDA and cuDNN asked for can serve the build.

    CUDA: same major version, which is what NVIDIA's minor version compatibility promises. cuDNN: same major version,
    and no later minor than the one that will be loaded, because TensorFlow refuses an older library than its headers. A
    part that build info lacks (the published wheel says only ``9`` for cuDNN) is not compared.
    """
    built = require_cuda(expectation)
    evidence = {
        "built": {"cuda": built.get("cuda_version"), "cudnn": built.get("cudnn_version")},
        "asked": {"cuda": expectation.cuda, "cudnn": expectation.cudnn},
    }
    remedy = "install the component wheels that this build wants, or build for these"
    for name, asked, compare in (("cuda", expectation.cuda, compare_cuda), ("cudnn", expectation.cudnn, compare_cudnn)):
        have = built.get(f"{name}_version")
        if not read_numbers(have):
            raise Fail(f"build info does not tell the {name} version", remedy=LOCAL_REMEDY, **evidence)
        if compare(have, asked) == "major":
            text = f"built for {name} {have}, asked for {asked}: another major version"
            raise Fail(text, remedy=remedy, **evidence)
    if compare_cudnn(built["cudnn_version"], expectation.cudnn) == "older":
        raise Fail(
            f"built for cuDNN {built['cudnn_version']}, asked for the older {expectation.cudnn}",
            remedy=remedy,
            **evidence,
        )
    return evidence


def build_capabilities(expectation: Expectation) -> Evidence:
    built = require_cuda(expectation)
    have = [str(item) for item in built.get("cuda_compute_capabilities") or []]
    evidence: Evidence = {"built": have, "asked": expectation.capability}
    if not have:
        raise Fail("build info lists no compute capabilities", remedy=LOCAL_REMEDY, **evidence)
    if not expectation.capability:
        return evidence
    how = find_coverage(have, expectation.capability)
    if how is None:
        raise Fail(
            f"no kernel for compute capability {expectation.capability} among {', '.join(have)}",
            remedy=f"build one: toolkit build-wheel --compute-capability {expectation.capability}; {refer('old-card')}",
            **evidence,
        )
    return {**evidence, "covered_by": str(how)}


CHECKS = (
    # A processor that lacks an instruction kills the import without a word.
    Check(TENSORFLOW, "TensorFlow imports", imports, timeout=180, slow=True, needs=("cpu.instructions",)),
    Check("version.tensorflow", "the version asked for is the version installed", version, needs=(TENSORFLOW,)),
    Check("version.wheel", "the wheel is for this Python and this machine", wheel_tags, needs=(TENSORFLOW,)),
    Check("version.dependencies", "what the wheel requires is installed", dependencies, needs=(TENSORFLOW,)),
    Check("version.files", "the installed files are the wheel's", files, timeout=300, needs=(TENSORFLOW,)),
    Check("version.apart", "no other package has overwritten a library", apart, needs=(TENSORFLOW,)),
    Check("build.info", "build info is there and agrees with the module", build_info, needs=(TENSORFLOW,)),
    Check(
        "build.cuda", "the CUDA and cuDNN as built can be served by those asked for", build_cuda, needs=(TENSORFLOW,)
    ),
    Check(
        "build.capabilities",
        "the kernels as built run on the capability asked for",
        build_capabilities,
        needs=(TENSORFLOW,),
    ),
)
