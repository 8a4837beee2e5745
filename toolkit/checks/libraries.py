"""Checks the libraries that TensorFlow needs, the system's and NVIDIA's. It needs neither a GPU nor a driver."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from . import installation, nvidia
from .check import (
    TENSORFLOW,
    Check,
    Evidence,
    Expectation,
    Fail,
    Skip,
    find_remedy,
    load_tensorflow,
    refer,
    require_attribute,
)
from .elf import read_defined_versions, read_needed, read_needed_versions, read_search_path, require_whole
from .gpu_rules import compare_cuda, compare_cudnn, read_numbers

OPENED: Final = ("libcudart", "libcublas", "libcublasLt", "libcufft", "libcusolver", "libcusparse", "libcudnn")
"""Libraries that TensorFlow opens by name (``xla/tsl/platform/default/dso_loader.cc``). Without one it uses no GPU."""

OPENED_BY_PROFILER: Final = ("libcupti",)
"""Library that it opens when it is asked for traces; without it they lack the GPU."""

DRIVER: Final = "libcuda.so.1"
"""The driver's library, which no package has."""

SYSTEM: Final = {"GLIBC": "the C library", "GLIBCXX": "libstdc++"}
"""Names of symbol versions, and the library that defines them."""

_CUDNN_REQUIREMENT: Final = re.compile(r"nvidia[-_]cudnn[-_]cu\d+\b[^;]*?(?:==|>=|~=)\s*(\d+(?:\.\d+){1,2})")

_REMEDY = "install the hash-locked set of the CUDA version, with every component wheel"


def find_wheels(built: Evidence) -> Mapping[str, nvidia.Wheel]:
    """Return NVIDIA's wheels for the CUDA of a build by component. Raises Fail if their names are not known."""
    version = str(built.get("cuda_version"))
    if wheels := nvidia.find_wheels(version):
        return wheels
    raise Fail(
        f"built for CUDA {version}: this check knows the libraries of CUDA {' and '.join(nvidia.WHEELS)} only",
        remedy="use a build for one of these, or add the names of that CUDA to nvidia.json",
    )


def list_libraries(built: Evidence) -> dict[str, str]:
    """Return the package of each of NVIDIA's libraries for the CUDA of a build, by soname. Raises Fail as above.

    Each library comes after those that it needs.
    """
    return {soname: wheel.package for wheel in find_wheels(built).values() for soname in wheel.libraries}


def system(_: Expectation) -> Evidence:
    """Check that C and C++ libraries are as new as TensorFlow needs. Reads files: the loader names one version."""
    spec = PathFinder.find_spec("tensorflow")  # also where a broken one is loaded already
    if spec is None or spec.origin is None:
        raise Skip("TensorFlow is not installed")
    root = Path(spec.origin).parent
    paths = sorted([*root.glob("libtensorflow_*.so*"), *root.glob("python/*.so*")])
    if not paths:
        raise Fail(f"{root} holds no library", remedy="this is no complete TensorFlow: install the wheel again")
    needed: dict[str, str] = {}
    for path in paths:
        try:
            found = read_needed_versions(path)
        except ValueError as error:
            raise Fail(str(error), remedy="install the wheel again, or build it again") from error
        for name, version in found.items():
            needed[name] = max(needed.get(name, ""), version, key=read_numbers)
    here = {"GLIBC": (os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(" ")[2]}
    if "GLIBCXX" in needed:
        here["GLIBCXX"] = _read_cxx_version()
    evidence = {"needed": {name: needed[name] for name in SYSTEM if name in needed}, "here": here}
    old = [name for name in SYSTEM if read_numbers(needed.get(name)) > read_numbers(here.get(name))]
    if old:
        name = old[0]
        raise Fail(
            f"TensorFlow needs {SYSTEM[name]} {name}_{needed[name]}, and {here[name] or 'none'} is here",
            remedy=find_remedy("glibc-too-old") if name == "GLIBC" else find_remedy("libstdcxx-too-old"),
            **evidence,
        )
    return evidence


def _read_cxx_version() -> str:
    try:
        ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return ""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    found = re.search(r"(/\S*libstdc\+\+\.so\.6\S*)", maps)
    return read_defined_versions(Path(found[1])).get("GLIBCXX", "") if found else ""


def reachable(expectation: Expectation) -> Evidence:
    """Check that TensorFlow's own loader finds, by name, every library that it opens on a machine with a GPU.
    ``tf.load_op_library`` calls the same ``dlopen`` from the same library, whose RUNPATH decides what is found. This
    runs before the other checks of libraries, because a loaded library is always found.
    """
    known = list_libraries(installation.require_cuda(expectation))
    tf = load_tensorflow()
    open_by_name = require_attribute(tf, "load_op_library")
    found: list[str] = []
    missing: dict[str, str] = {}
    for name in (*OPENED, *OPENED_BY_PROFILER):
        soname = _pick(name, known)
        try:
            open_by_name(soname)
            found.append(soname)
        except tf.errors.NotFoundError as error:
            missing[soname] = str(error.message)
    needed = [soname for soname in missing if soname.partition(".")[0] in OPENED]
    if needed:
        raise Fail(
            f"TensorFlow does not find {', '.join(needed)}, and would drop every GPU",
            remedy=find_remedy("gpu-library-path"),
            missing=missing,
        )
    return {"found": found, "missing": missing}


def load(expectation: Expectation) -> Evidence:
    """Check that every library of the set loads with all its symbols bound (RTLD_NOW).

    On a machine without a driver those that need it are left out.
    """
    built = installation.require_cuda(expectation)
    known, folders, driver = list_libraries(built), search_folders(built), _has_driver()
    loaded: dict[str, str] = {}
    missing: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for soname, package in known.items():
        if not driver and needs(soname, DRIVER, folders):
            skipped[soname] = f"it needs {DRIVER} of the driver, which is not here"
            continue
        try:
            _, loaded[soname] = open_library(soname, folders)
        except OSError as error:
            missing[soname] = f"{error} (package {package})"
    if missing:
        packages = sorted({known[soname] for soname in missing})
        raise Fail(
            f"{len(missing)} of {len(known)} libraries do not load: {', '.join(missing)}",
            remedy=f"install {', '.join(packages)} of the CUDA asked for; {refer('gpu-library-missing')}",
            missing=missing,
            loaded=loaded,
            skipped=skipped,
        )
    return {"loaded": loaded, "skipped": skipped}


def _has_driver() -> bool:
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return False
    return True


def needs(soname: str, other: str, folders: list[Path]) -> bool:
    """Return whether a library in one of some folders needs another one, itself or by those that it needs."""
    seen, waiting = {soname}, [soname]
    while waiting:
        name = waiting.pop()
        file = next((folder / name for folder in folders if (folder / name).is_file()), None)
        try:
            needed = set(read_needed(file)) if file else set()
        except (OSError, ValueError):
            continue  # to load it fails, and says why
        if other in needed:
            return True
        waiting += needed - seen
        seen |= needed
    return False


def versions(expectation: Expectation) -> Evidence:
    """Check that the loaded libraries are the CUDA and cuDNN asked for, and fit those of the build.

    ``cudaRuntimeGetVersion`` tells only major and minor (12060 is 12.6). The patch number of the CUDA asked for cannot
    be compared; the evidence has the versions of the component wheels instead. ``cudnnGetVersion`` tells all three.
    """
    built = installation.require_cuda(expectation)
    known, folders = list_libraries(built), search_folders(built)
    cuda = _ask_library("libcudart", known, folders, _out_parameter("cudaRuntimeGetVersion"))
    cudnn = _ask_library("libcudnn", known, folders, _return_value("cudnnGetVersion"))
    cublas = _ask_library("libcublasLt", known, folders, _return_value("cublasLtGetVersion"))
    loaded = {"cuda": (cuda // 1000, cuda % 1000 // 10), "cudnn": decode_cudnn(cudnn)}
    evidence = {
        "cudaRuntimeGetVersion": cuda,
        "cudnnGetVersion": cudnn,
        "cublasLtGetVersion": cublas,
        "asked": {"cuda": expectation.cuda, "cudnn": expectation.cudnn},
        "built": {"cuda": built.get("cuda_version"), "cudnn": built.get("cudnn_version")},
        "wheels": _wheels(),
    }
    for name, asked, compare in (("cuda", expectation.cuda, compare_cuda), ("cudnn", expectation.cudnn, compare_cudnn)):
        have, want = loaded[name], read_numbers(asked)
        if want and have[: len(want)] != want[: len(have)]:
            text = f"{name} {asked} was asked for, {'.'.join(map(str, have))} is loaded"
            raise Fail(text, remedy=_REMEDY, **evidence)
        headers = built.get(f"{name}_version")
        if compare(headers, ".".join(map(str, have))) == "major":
            text = f"{name} {have[0]} is loaded, TensorFlow was built for {read_numbers(headers)[0]}"
            raise Fail(text, remedy=_REMEDY, **evidence)
    present = ".".join(map(str, loaded["cudnn"]))
    wanted = str(built.get("cudnn_version") or "")
    if len(read_numbers(wanted)) < 2 and not expectation.cudnn:
        wanted = read_required_cudnn() or wanted
    if compare_cudnn(wanted, present) == "older":
        raise Fail(
            f"cuDNN {present} is loaded, older than {wanted} of the build",
            remedy=find_remedy("cudnn-older", built=wanted),
            **evidence,
        )
    return evidence


def read_required_cudnn() -> str:
    """Return the oldest cuDNN that the extra and-cuda of the wheel takes.

    The build info of published wheels has no minor version.
    """
    for found in metadata.distributions():
        if str(found.name).lower().startswith(("tensorflow", "tf_nightly", "tf-nightly")):
            for requirement in found.requires or []:
                if match := _CUDNN_REQUIREMENT.match(requirement):
                    return match[1]
    return ""


def search_folders(built: Evidence) -> list[Path]:
    """Return where the loader looks: LD_LIBRARY_PATH, the RUNPATH of TensorFlow, the folders of component wheels."""
    root = Path(str(load_tensorflow().__file__)).parent
    folders = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for library in sorted(root.glob("libtensorflow_*.so*")):
        folders += read_search_path(library)
    folders += [root.parent / "nvidia" / wheel.folder / "lib" for wheel in find_wheels(built).values()]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def open_library(soname: str, folders: list[Path]) -> tuple[ctypes.CDLL, str]:
    """Load a library from the first folder that has it, else by the system's search, and return its path too."""
    for folder in folders:
        file = folder / soname
        if file.exists():
            try:
                require_whole(file)
            except ValueError as error:
                raise OSError(str(error)) from error
            # A library may crash in its own initialization: then this is the last line on standard error.
            print(f"loading {file}", file=sys.stderr, flush=True)
            return ctypes.CDLL(str(file), mode=os.RTLD_NOW | os.RTLD_LOCAL), str(file)
    return ctypes.CDLL(soname, mode=os.RTLD_NOW | os.RTLD_LOCAL), "found by the system"


def decode_cudnn(number: int) -> tuple[int, int, int]:
    """Return the parts of a version number: 90500 is 9.5.0; up to cuDNN 8, 8904 is 8.9.4."""
    if number >= 10000:
        return number // 10000, number % 10000 // 100, number % 100
    return number // 1000, number % 1000 // 100, number % 100


def _pick(name: str, known: Iterable[str]) -> str:
    return next(soname for soname in known if soname.partition(".")[0] == name)


def _ask_library(name: str, known: dict[str, str], folders: list[Path], question: Callable[[ctypes.CDLL], int]) -> int:
    soname = _pick(name, known)
    try:
        return question(open_library(soname, folders)[0])
    except (OSError, AttributeError) as error:
        raise Fail(f"{soname} cannot be asked: {error}", remedy=f"install {known[soname]}") from error


def _return_value(function: str) -> Callable[[ctypes.CDLL], int]:
    def ask(library: ctypes.CDLL) -> int:
        call = library[function]
        call.restype = ctypes.c_size_t
        return int(call())

    return ask


def _out_parameter(function: str) -> Callable[[ctypes.CDLL], int]:
    def ask(library: ctypes.CDLL) -> int:
        value = ctypes.c_int(0)
        code = library[function](ctypes.byref(value))
        if code:
            raise OSError(f"{function} returned error {code}")
        return value.value

    return ask


def _wheels() -> dict[str, str]:
    found = {str(item.name): item.version for item in metadata.distributions()}
    return {name: found[name] for name in sorted(found) if re.match(r"nvidia[-_]", name)}


CHECKS = (
    Check("libraries.system", "the C and C++ libraries are as new as TensorFlow needs", system, 60),
    Check("libraries.reachable", "TensorFlow finds the libraries that it opens", reachable, 120, (TENSORFLOW,)),
    Check("libraries.load", "every NVIDIA library of the set loads", load, 120, (TENSORFLOW,)),
    Check("libraries.versions", "the loaded CUDA and cuDNN are those asked for", versions, 120, (TENSORFLOW,)),
)
