"""Compiles the null GPU with this machine's C compiler, once for each state of its sources; complete or absent."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from train.errors import PreflightError
from train.rehearsal import stubs

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
)
"""The names under which TensorFlow's CUDA 12 build opens its libraries; all are links to the one file."""

_FLAGS: Final = ("-std=gnu11", "-O1", "-g", "-fPIC", "-Wall", "-Wno-nonnull-compare")


def find_tensorflow() -> Path:
    """Find the folder of TensorFlow's CUDA build without loading it.

    Raises:
        PreflightError: there is no TensorFlow, or it is not a CUDA build.
    """
    remedy = "`toolkit rehearse` makes an environment with the CUDA build; by hand: pip install tensorflow==2.19.0"
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


def _headers(tensorflow: Path) -> tuple[Path, Path]:
    root = tensorflow / "include" / "third_party" / "gpus"
    return root / "cuda" / "include", root / "cudnn" / "include"


def build(tensorflow: Path, cache: Path) -> Path:
    """Compile the library, or find it compiled; returns the folder for ``LD_LIBRARY_PATH``.

    Args:
        tensorflow: folder of the TensorFlow package, whose public CUDA headers are used.
        cache: folder of compiled libraries, one for each digest of what goes into them.

    Raises:
        PreflightError: there is no C compiler, it fails, or the cache cannot be written.
    """
    compiler = _find_compiler()
    texts = _read_headers(tensorflow)
    folder = cache / _digest(compiler, texts)
    if (folder / FILE).exists():
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as text:
            made = Path(text) / "library"
            made.mkdir()
            _compile(compiler, tensorflow, texts, Path(text), made / FILE)
            for name in SONAMES:
                (made / name).symlink_to(FILE)
            _move(made, folder)
    except OSError as error:
        raise PreflightError(
            f"the emulated GPU's library cannot be written to {cache}: {error.strerror}",
            remedy="free space or give another folder with --library-cache",
        ) from error
    return folder


def _move(made: Path, folder: Path) -> None:
    """Put the finished folder in its place; another process may have been first, with the same content."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / FILE).exists():
            raise


def _find_compiler() -> str:
    asked = os.environ.get("CC")
    for name in [asked] if asked else ["cc", "gcc", "clang"]:
        found = shutil.which(name)
        if found:
            return found
    raise PreflightError(
        f"there is no C compiler: {asked or 'cc, gcc and clang'} not found",
        why="the emulated GPU is a small C library that is compiled for the headers of the TensorFlow at hand",
        remedy="install one (Debian: apt-get install gcc libc6-dev), or name one by the variable CC",
    )


def _read_headers(tensorflow: Path) -> list[str]:
    texts = []
    for name in stubs.HEADERS:
        path = next((folder / name for folder in _headers(tensorflow) if (folder / name).is_file()), None)
        if path is None:
            raise PreflightError(
                f"TensorFlow's wheel lacks the header {name}",
                why="the emulated GPU is written for TensorFlow 2.19.0 with CUDA 12 and cuDNN 9",
                remedy="install tensorflow==2.19.0",
            )
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return texts


def _digest(compiler: str, texts: list[str]) -> str:
    state = hashlib.sha256(" ".join((compiler, *_FLAGS, *SONAMES)).encode())
    for path in [Path(stubs.__file__), *sorted(SOURCES.iterdir())]:
        state.update(f"{path.name}\0".encode() + path.read_bytes())
    for text in texts:
        state.update(text.encode())
    return state.hexdigest()[:16]


def _compile(compiler: str, tensorflow: Path, texts: list[str], work: Path, output: Path) -> None:
    generated = work / "stubs.c"
    generated.write_text(stubs.write(texts), encoding="utf-8")
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
