"""Compiles the emulated GPU with this machine's C compiler, once for each state of its sources.

Functions that `native` lacks are generated from the public headers. One that computes is counted as a library call. One
that sets, destroys, checks or creates an opaque handle succeeds, because TensorFlow does not read its answer. Any other
is counted and returns an error, because TensorFlow notices an error but not a missing answer.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from rehearsal import kernels
from train.errors import PreflightError

HEADERS: Final = (
    "cuda.h",
    "cuda_runtime_api.h",
    "cublas_api.h",
    "cublasLt.h",
    "cudnn_graph_v9.h",
    "cudnn_ops_v9.h",
    "cudnn_cnn_v9.h",
    "cudnn_adv_v9.h",
    "cufft.h",
    "cusolverDn.h",
    "cusolver_common.h",
    "cusparse.h",
)


class _Library(NamedTuple):
    pattern: str
    refusal: int


_LIBRARIES: Final = (
    _Library(r"cublas\w+", 15),
    _Library(r"cudnn\w+", 3000),
    _Library(r"cufft\w+", 16),
    _Library(r"cusolver\w+", 9),
    _Library(r"cusparse\w+", 10),
    _Library(r"cuda[A-Z]\w+", 801),
    _Library(r"cu[A-Z]\w+", 801),
)
_NAME: Final = re.compile(r"\b(cu(?:da|blas|blasLt|dnn|fft|solver|sparse)?[A-Z]\w*)\s*\(")
_VERSIONED: Final = re.compile(r"#define\s+cu[A-Z]\w+\s+(?:__CUDA_API_\w+\()?(cu[A-Z]\w+_v\d)\b")
_NO_FUNCTION: Final = re.compile(r"_pt[sd][sz]$|_t$")
_ASIDE: Final = re.compile(
    r"Get|Set|Create|Destroy|Check|Init|Query|Heuristic|BufferSize|bufferSize|Size|Version|Descr"
)
_HANDLE: Final = re.compile(r"(cublas(Lt)?|cudnn|cusolver\w*|cusparse)Create\w*")
_SILENT: Final = re.compile(
    r"(cublas|cudnn|cusolver|cusparse)\w*(Set|Destroy|Check)\w*|cu(da)?\w*(Destroy|Unload|Reset|ProfilerSt)\w*"
)


def list_names(headers: Iterable[str]) -> list[str]:
    found: set[str] = set()
    for text in headers:
        found.update(_NAME.findall(text))
        found.update(_VERSIONED.findall(text))
    return sorted(name for name in found if not _NO_FUNCTION.search(name))


def answer(name: str) -> str:
    if _HANDLE.fullmatch(name):
        return "*handle = calloc(1, 512); return 0;"
    if _SILENT.fullmatch(name):
        return "return 0;"
    library = next(library for library in _LIBRARIES if re.fullmatch(library.pattern, name))
    driver_or_runtime = library.refusal == 801
    if not driver_or_runtime and not _ASIDE.search(name):
        return f'return ng_call_library("{name}");'
    return f'ng_count("not emulated", "{name}", 1); return {library.refusal};'


def write_stubs(headers: Iterable[str]) -> str:
    lines = [
        "#include <stdlib.h>",
        "void ng_count(const char *group, const char *name, long amount);",
        "int ng_call_library(const char *name);",
    ]
    for name in list_names(headers):
        parameters = "void **handle" if _HANDLE.fullmatch(name) else "void"
        lines.append(f"__attribute__((weak)) int {name}({parameters}) {{ {answer(name)} }}")
    return "\n".join(lines) + "\n"


SOURCES: Final = Path(__file__).parent / "native"
FILE: Final = "libnullgpu.so"
SONAMES: Final = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcublas.so.12",
    "libcublasLt.so.12",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcusolver.so.11",
    "libcusparse.so.12",
    "libnvidia-ml.so.1",
)
"""The names under which TensorFlow's CUDA 12 build opens its libraries. All of them are links to one file."""

_FLAGS: Final = ("-std=gnu11", "-O1", "-g", "-fPIC", "-Wall", "-Wno-nonnull-compare")


def find_tensorflow() -> Path:
    """Find the folder of TensorFlow's CUDA build without loading it; raises a PreflightError if there is none."""
    by_hand = f"pip install tensorflow=={kernels.read_table().version}"
    remedy = f"`toolkit rehearse` makes an environment with the CUDA build; by hand: {by_hand}"
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise PreflightError("TensorFlow is not installed here", remedy=remedy)
    folder = Path(spec.submodule_search_locations[0])
    if not (_headers(folder)[0] / "cuda.h").is_file() or not _is_cuda_build(folder):
        raise PreflightError(
            "this TensorFlow has no GPU support, so its GPU path cannot be rehearsed",
            why=f"{folder} is not a CUDA build",
            remedy=remedy,
        )
    return folder


def _is_cuda_build(folder: Path) -> bool:
    text = (folder / "python" / "platform" / "build_info.py").read_text(encoding="utf-8")
    return "'is_cuda_build': True" in text or "('is_cuda_build', True)" in text or '"is_cuda_build", True' in text


def _headers(tensorflow: Path) -> tuple[Path, ...]:
    root = tensorflow / "include" / "third_party" / "gpus"
    more = root / "cuda" / "libcudacxx" / "include"  # which the headers of TensorFlow 2.20 and later include
    return root / "cuda" / "include", root / "cudnn" / "include", *([more] if more.is_dir() else [])


def build(tensorflow: Path, cache: Path) -> Path:
    """Compile the library unless it is cached; returns its folder. Raises a PreflightError if that fails."""
    compiler = _find_compiler()
    texts = _read_headers(tensorflow)
    folder = cache / _digest(compiler, texts)
    if (folder / FILE).exists():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as text:
            finished = Path(text) / "library"
            finished.mkdir()
            _compile(compiler, tensorflow, texts, Path(text), finished / FILE)
            for name in SONAMES:
                (finished / name).symlink_to(FILE)
            _move(finished, folder)
    except OSError as error:
        raise PreflightError(
            f"the emulated GPU's library cannot be written to {cache}: {error.strerror}",
            remedy="free space or give another folder with --library-cache",
        ) from error
    return folder


def _move(finished: Path, folder: Path) -> None:
    try:
        finished.rename(folder)
    except OSError:
        if not (folder / FILE).exists():
            raise


def _find_compiler() -> str:
    asked = os.environ.get("CC")
    for name in [asked] if asked else ["cc", "gcc", "clang"]:
        compiler = shutil.which(name)
        if compiler:
            return compiler
    raise PreflightError(
        f"there is no C compiler: {asked or 'cc, gcc and clang'} not found",
        why="the emulated GPU is a small C library that is compiled for the headers of the TensorFlow at hand",
        remedy="install one (Debian: apt-get install gcc libc6-dev), or name one by the variable CC",
    )


def _read_headers(tensorflow: Path) -> list[str]:
    texts = []
    for name in HEADERS:
        path = next((folder / name for folder in _headers(tensorflow) if (folder / name).is_file()), None)
        if path is None:
            version = kernels.read_table().version
            raise PreflightError(
                f"TensorFlow's wheel lacks the header {name}",
                why=f"the emulated GPU is written for TensorFlow {version} with CUDA 12 and cuDNN 9",
                remedy=f"install tensorflow=={version}",
            )
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return texts


def _digest(compiler: str, texts: list[str]) -> str:
    state = hashlib.sha256(" ".join((compiler, *_FLAGS, *SONAMES)).encode())
    for path in [Path(__file__), *sorted(SOURCES.iterdir())]:
        state.update(f"{path.name}\0".encode() + path.read_bytes())
    for text in texts:
        state.update(text.encode())
    return state.hexdigest()[:16]


def _compile(compiler: str, tensorflow: Path, texts: list[str], work: Path, output: Path) -> None:
    generated = work / "stubs.c"
    generated.write_text(write_stubs(texts), encoding="utf-8")
    includes = [flag for folder in _headers(tensorflow) for flag in ("-isystem", str(folder))]
    link = ["-shared", f"-Wl,-soname,{FILE}", "-Wl,-Bsymbolic", "-pthread", "-o", str(output)]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = [compiler, *_FLAGS, *includes, *link, *sources, str(generated)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreflightError(
            f"the C compiler {compiler} cannot compile the emulated GPU",
            why="\n    ".join(done.stderr.strip().splitlines()[-8:]),
            remedy="install the C library's headers (Debian: apt-get install libc6-dev), or name another by CC",
        )
