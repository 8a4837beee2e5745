"""Compiles the emulated GPU with this machine's C compiler.

Functions that `native` lacks are generated from the public headers. One that computes is counted as a library call. One
that sets, destroys, checks or creates an opaque handle succeeds, because TensorFlow does not read its answer. Any other
is counted and returns an error, because TensorFlow notices an error but not a missing answer.
"""

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

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
    """Find the folder of TensorFlow without loading it."""
    spec = importlib.util.find_spec("tensorflow")
    assert spec
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def _headers(tensorflow: Path) -> tuple[Path, ...]:
    root = tensorflow / "include" / "third_party" / "gpus"
    more = root / "cuda" / "libcudacxx" / "include"  # which the headers of TensorFlow 2.20 and later include
    return root / "cuda" / "include", root / "cudnn" / "include", *([more] if more.is_dir() else [])


def build(tensorflow: Path, folder: Path) -> None:
    """Compile the library into a folder."""
    headers = _headers(tensorflow)
    texts = [_find(headers, name).read_text() for name in HEADERS]
    generated = folder / "stubs.c"
    generated.write_text(write_stubs(texts), encoding="utf-8")
    includes = [flag for header in headers for flag in ("-isystem", str(header))]
    link = ["-shared", f"-Wl,-soname,{FILE}", "-Wl,-Bsymbolic", "-pthread", "-o", str(folder / FILE)]
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    subprocess.run([os.environ.get("CC", "cc"), *_FLAGS, *includes, *link, *sources, str(generated)], check=True)
    for name in SONAMES:
        (folder / name).symlink_to(FILE)


def _find(folders: Iterable[Path], name: str) -> Path:
    return next(folder / name for folder in folders if (folder / name).is_file())
