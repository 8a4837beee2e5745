"""Each NVIDIA library loads, and is the version asked for.

No GPU and no driver are needed for this: the libraries answer for themselves, through ctypes.
"""

import ctypes
import os
import re
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from . import build_info, elf, loading
from .check import TENSORFLOW, Ask, Check, Evidence, Fail
from .components import CUDA_12, OPENED, OPENED_BY_PROFILER, Library

_REMEDY = "install the hash-locked set of the CUDA version, with every component wheel"


def reachable(ask: Ask) -> Evidence:
    """TensorFlow's own loader finds, by name, every library that it opens on a machine with a GPU.

    It is made to look by ``tf.load_op_library``: the same ``dlopen`` from the same library, whose RUNPATH decides what
    is found. Runs before the other checks of libraries, because what is already loaded is always found.
    """
    _require_known(build_info.require_cuda(ask))
    tf = loading.tensorflow()
    open_by_name = loading.require(tf, "load_op_library")
    missing: dict[str, str] = {}
    for soname in (*OPENED, *OPENED_BY_PROFILER):
        try:
            open_by_name(soname)
        except tf.errors.NotFoundError as error:
            missing[soname] = str(error.message)
    needed = [soname for soname in OPENED if soname in missing]
    if needed:
        raise Fail(
            f"TensorFlow does not find {', '.join(needed)}, and would drop every GPU",
            remedy="add their folders to LD_LIBRARY_PATH; if libraries.load fails too, install them",
            missing=missing,
        )
    return {"found": [soname for soname in (*OPENED, *OPENED_BY_PROFILER) if soname not in missing], "missing": missing}


def load(ask: Ask) -> Evidence:
    """Every library of the set is found and loads with all its symbols bound (RTLD_NOW)."""
    _require_known(build_info.require_cuda(ask))
    folders = search_folders()
    loaded: dict[str, str] = {}
    missing: dict[str, str] = {}
    for library in CUDA_12:
        try:
            _, place = open_library(library, folders)
            loaded[library.soname] = place
        except OSError as error:
            missing[library.soname] = f"{error} (package {library.package})"
    if missing:
        packages = sorted({library.package for library in CUDA_12 if library.soname in missing})
        raise Fail(
            f"{len(missing)} of {len(CUDA_12)} libraries do not load: {', '.join(missing)}",
            remedy=f"install {', '.join(packages)} in the versions of the CUDA asked for",
            missing=missing,
            loaded=loaded,
        )
    return {"loaded": loaded}


def versions(ask: Ask) -> Evidence:
    """The loaded libraries say that they are the CUDA and cuDNN asked for, and serve what TensorFlow was built with.

    ``cudaRuntimeGetVersion`` tells major and minor (12060 is 12.6) and no more: the patch number of the CUDA asked for
    cannot be compared, the component wheels' own versions are given instead. ``cudnnGetVersion`` tells all three.
    """
    built = build_info.require_cuda(ask)
    _require_known(built)
    folders = search_folders()
    cuda = _ask_library("libcudart.so.12", folders, _out_parameter("cudaRuntimeGetVersion"))
    cudnn = _ask_library("libcudnn.so.9", folders, _return_value("cudnnGetVersion"))
    cublas = _ask_library("libcublasLt.so.12", folders, _return_value("cublasLtGetVersion"))
    loaded = {"cuda": (cuda // 1000, cuda % 1000 // 10), "cudnn": decode_cudnn(cudnn)}
    evidence = {
        "cudaRuntimeGetVersion": cuda,
        "cudnnGetVersion": cudnn,
        "cublasLtGetVersion": cublas,
        "asked": {"cuda": ask.cuda, "cudnn": ask.cudnn},
        "built": {"cuda": built.get("cuda_version"), "cudnn": built.get("cudnn_version")},
        "wheels": _wheels(),
    }
    for name, asked in (("cuda", ask.cuda), ("cudnn", ask.cudnn)):
        have, want = loaded[name], build_info.numbers(asked)
        if want and have[: len(want)] != want[: len(have)]:
            text = f"{name} {asked} was asked for, {'.'.join(map(str, have))} is loaded"
            raise Fail(text, remedy=_REMEDY, **evidence)
        headers = build_info.numbers(built.get(f"{name}_version"))
        if headers and have[0] != headers[0]:
            text = f"{name} {have[0]} is loaded, TensorFlow was built for {headers[0]}"
            raise Fail(text, remedy=_REMEDY, **evidence)
    headers = build_info.numbers(built.get("cudnn_version"))
    if loaded["cudnn"][:2] < headers[:2]:
        raise Fail(
            f"cuDNN {'.'.join(map(str, loaded['cudnn']))} is loaded, older than {built['cudnn_version']} of the build",
            remedy="TensorFlow refuses this on a GPU: install that cuDNN or a later minor of it",
            **evidence,
        )
    return evidence


def search_folders() -> list[Path]:
    """Where the loader looks when TensorFlow calls dlopen: LD_LIBRARY_PATH, then the RUNPATH of its libraries.

    Then the folders of the component wheels, for libraries that only other NVIDIA libraries load.
    """
    root = Path(str(loading.tensorflow().__file__)).parent
    folders = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for library in sorted(root.glob("libtensorflow_*.so*")):
        folders += elf.read_search_path(library)
    folders += [root.parent / "nvidia" / library.folder for library in CUDA_12]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def open_library(library: Library, folders: list[Path]) -> tuple[ctypes.CDLL, str]:
    """Load a library from the first folder that has it, else by the system's own search; also says from where.

    Raises:
        OSError: it is nowhere, or it does not load; the message is the loader's.
    """
    for folder in folders:
        file = folder / library.soname
        if file.exists():
            try:
                elf.require_whole(file)
            except ValueError as error:
                raise OSError(str(error)) from error
            # A library may crash in its own initialization: then this is the last line on standard error.
            print(f"loading {file}", file=sys.stderr, flush=True)
            return ctypes.CDLL(str(file), mode=os.RTLD_NOW | os.RTLD_LOCAL), str(file)
    return ctypes.CDLL(library.soname, mode=os.RTLD_NOW | os.RTLD_LOCAL), "found by the system"


def decode_cudnn(number: int) -> tuple[int, int, int]:
    """90500 is 9.5.0; up to cuDNN 8 the major had three digits after it less: 8904 is 8.9.4."""
    if number >= 10000:
        return number // 10000, number % 10000 // 100, number % 100
    return number // 1000, number % 1000 // 100, number % 100


def _require_known(built: Evidence) -> None:
    major = build_info.numbers(built.get("cuda_version"))[:1]
    if major != (12,):
        raise Fail(
            f"built for CUDA {built.get('cuda_version')}: this check knows the libraries of CUDA 12 only",
            remedy="use a build for CUDA 12, or add the list of libraries to components.py",
        )


def _ask_library(soname: str, folders: list[Path], question: Callable[[ctypes.CDLL], int]) -> int:
    library = next(item for item in CUDA_12 if item.soname == soname)
    try:
        return question(open_library(library, folders)[0])
    except (OSError, AttributeError) as error:
        raise Fail(f"{soname} cannot be asked: {error}", remedy=f"install {library.package}") from error


def _return_value(function: str) -> Callable[[ctypes.CDLL], int]:
    """A function that returns its version as ``size_t``."""

    def ask(library: ctypes.CDLL) -> int:
        call = library[function]
        call.restype = ctypes.c_size_t
        return int(call())

    return ask


def _out_parameter(function: str) -> Callable[[ctypes.CDLL], int]:
    """A function that writes its version through an ``int *`` and returns an error code."""

    def ask(library: ctypes.CDLL) -> int:
        value = ctypes.c_int(0)
        code = library[function](ctypes.byref(value))
        if code:
            raise OSError(f"{function} returned error {code}")
        return value.value

    return ask


def _wheels() -> dict[str, str]:
    """Installed NVIDIA component wheels and their versions."""
    found = {str(item.name): item.version for item in metadata.distributions()}
    return {name: found[name] for name in sorted(found) if re.match(r"nvidia[-_]", name)}


CHECKS = (
    Check("libraries.reachable", "TensorFlow finds the libraries that it opens", reachable, 120, (TENSORFLOW,)),
    Check("libraries.load", "every NVIDIA library of the set loads", load, 120, (TENSORFLOW,)),
    Check("libraries.versions", "the loaded CUDA and cuDNN are those asked for", versions, 120, (TENSORFLOW,)),
)
