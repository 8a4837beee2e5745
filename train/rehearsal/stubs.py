"""Writes the C source of every CUDA entry point that `native` leaves out, from the names in the public headers.

An entry point that computes is counted as a library call. One whose answer nobody reads (it sets, destroys, checks or
makes an opaque handle) succeeds. Any other is refused and counted, because a success with an answer missing is worse
than an error: TensorFlow then reports it like any error of a library. That includes ``cuGetExportTable``.
"""

import re
from collections.abc import Iterable
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
    """Names of a library, and its own number for "not supported"."""

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
    """List the entry points that these texts of headers declare, sorted."""
    found: set[str] = set()
    for text in headers:
        found.update(_NAME.findall(text))
        found.update(_VERSIONED.findall(text))
    return sorted(name for name in found if not _NO_FUNCTION.search(name))


def answer(name: str) -> str:
    """The C statements that an entry point consists of."""
    if _HANDLE.fullmatch(name):
        return "*handle = calloc(1, 512); return 0;"
    if _SILENT.fullmatch(name):
        return "return 0;"
    library = next(library for library in _LIBRARIES if re.fullmatch(library.pattern, name))
    driver_or_runtime = library.refusal == 801
    if not driver_or_runtime and not _ASIDE.search(name):
        return f'return ng_call_library("{name}");'
    return f'ng_count("not emulated", "{name}", 1); return {library.refusal};'


def write(headers: Iterable[str]) -> str:
    """Write the source. Its functions are weak: one that `native` defines takes the place of the one made here."""
    lines = [
        "#include <stdlib.h>",
        "void ng_count(const char *group, const char *name, long amount);",
        "int ng_call_library(const char *name);",
    ]
    for name in list_names(headers):
        parameters = "void **handle" if _HANDLE.fullmatch(name) else "void"
        lines.append(f"__attribute__((weak)) int {name}({parameters}) {{ {answer(name)} }}")
    return "\n".join(lines) + "\n"
