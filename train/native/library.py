"""Finds the library of native kernels, or builds it by the C++ compiler of this machine, and checks it.

A library is named by the digest of its source, compiler and flags, so that each combination is built once. It appears
in the cache only when it is whole and has passed its check; several processes may build it at once.
"""

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from train.cores import count_cores
from train.errors import PreflightError

SOURCE: Final = Path(__file__).parent / "source"
PREBUILT: Final = Path(__file__).parent / "kernels.so"
"""Where an image has the library that its toolchain built."""

VARIABLE: Final = "TOOLKIT_KERNELS"
"""Environment variable with the path of a library to use in place of one in the package or the cache."""

COMPILERS: Final = ("c++", "g++", "clang++")
FLAGS: Final = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-math-errno",
    "-ffp-contract=off",  # only the source decides where a multiply-add is fused
)
LINK_FLAGS: Final = ("-shared", "-pthread", "-static-libstdc++", "-static-libgcc", "-Wl,--exclude-libs,ALL")

INNER: Final = "primitives.cpp"
"""The source that is compiled once for each instruction set."""


@dataclass(frozen=True)
class Processors:
    """A kind of processors: how the library is compiled for them, and what they must have."""

    flags: tuple[str, ...]
    instructions: Mapping[str, tuple[str, ...]]
    """Instruction sets that the inner loops are compiled for, with further flags. The linker keeps the first of equal
    functions, so the least set is first.
    """
    needed: tuple[str, ...]  # by their names in /proc/cpuinfo
    label: str  # of the line there that names them


PROCESSORS: Final = {
    "x86_64": Processors(
        flags=("-mavx2", "-mfma", "-mprfchw"),
        instructions={
            "avx2": (),
            "avx512": ("-mavx512f",),
            "amx": ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
        },
        needed=("avx2", "fma"),
        label="flags",
    ),
    "aarch64": Processors(
        flags=(),
        instructions={"neon": ("-fno-schedule-insns",)},  # g++ 12 would keep sums of the innermost loops in memory
        needed=("asimd",),
        label="Features",
    ),
}
"""The kinds by the name that the operating system's kernel and compilers give them."""

EXPECTED: Final = "b09bfbb1ab0fb22a 33c6a908e3a13634"
"""Digests of the results of a small case in float32 and in bfloat16. They are the same on every processor.

They change only if the kernels' arithmetic does.
"""


@dataclass(frozen=True)
class Library:
    """A checked library."""

    path: Path
    instructions: str  # the instruction set that it uses on this processor
    source_sha256: str  # digest of the source that it was built from
    origin: str  # which compiler built it, or that it was given


@functools.cache
def find() -> Library:
    """Return the library that is given, prebuilt or in the cache, else a new one. Raises a PreflightError."""
    trouble = explain_processor()
    if trouble:
        raise PreflightError("this processor cannot run the native kernels", why=trouble, remedy=_REMEDY)
    given = os.environ.get(VARIABLE)
    if given or PREBUILT.exists():
        path = Path(given) if given else PREBUILT
        return check(path, origin="prebuilt")
    return build(find_cache())


_KINDS: Final = " and ".join(PROCESSORS)
_REMEDY: Final = "use --kernels stock, or auto to use native kernels where they run"


def explain_processor(machine: str = "", facts: Path = Path("/proc/cpuinfo")) -> str:
    """Return why this processor cannot run the library; an empty text if it can."""
    machine = machine or platform.machine()
    kind = PROCESSORS.get(machine)
    if kind is None or sys.platform != "linux":
        return f"they are for {_KINDS} processors on Linux, and this is {machine} on {sys.platform}"
    try:
        lines = facts.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        return f"{facts} cannot be read: {error.strerror}"
    # An emulator may show the features of the real processor. The check of the library then has to find out.
    named = (line.split(":", 1)[1].split() for line in lines if line.startswith(kind.label))
    features = next(named, list(kind.needed))
    missing = [name for name in kind.needed if name not in features]
    return f"it has no {' and no '.join(missing)}" if missing else ""


@functools.cache
def digest_source() -> str:
    """Return the SHA-256 of the names and contents of all source files, as hexadecimal text."""
    state = hashlib.sha256()
    for path in sorted(SOURCE.iterdir()):
        if path.suffix in {".cpp", ".h"}:
            state.update(f"{path.name}:{path.stat().st_size};".encode())
            state.update(path.read_bytes())
    return state.hexdigest()


_STEERING: Final = frozenset({
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "OBJCPLUS_INCLUDE_PATH", "LIBRARY_PATH",
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES",
    "LD_PRELOAD", "LD_AUDIT",
})  # fmt: skip
"""Variables by which a caller tells a compiler where to read and write."""


def find_compiler() -> str:
    """Return the path of a C++ compiler; raises a PreflightError if there is none.

    Folders of PATH that are named from the current folder do not count: that may be a stranger's.
    """
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    absolute = os.pathsep.join(place for place in places if Path(place).is_absolute())
    for name in filter(None, (os.environ.get("CXX"), *COMPILERS)):
        path = shutil.which(name, path=absolute)
        if path:
            return str(Path(path).absolute())
    raise PreflightError(
        "the native kernels cannot be built",
        why=f"there is no C++ compiler: {', '.join(COMPILERS)}",
        remedy=f"install one, or {_REMEDY}",
    )


def build(cache: Path) -> Library:
    """Return the library from the cache; if it is not there, build and check it first."""
    compiler = find_compiler()
    target = find_target(compiler)
    if target != platform.machine():
        raise PreflightError(
            f"{compiler} does not compile for this machine",
            why=f"it compiles for {target}, and this is {platform.machine()}",
            remedy=f"give another compiler by CXX, or {_REMEDY}",
        )
    version = _run([compiler, "--version"]).splitlines()[0]
    words = json.dumps([digest_source(), version, FLAGS, LINK_FLAGS, asdict(PROCESSORS[target])])
    path = cache / f"kernels-{hashlib.sha256(words.encode()).hexdigest()[:32]}.so"
    try:
        if _is_own(path):
            with contextlib.suppress(PreflightError):  # one that is damaged is built again
                return check(path, origin=version)
        _prepare_cache(cache)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as folder:
            made = _compile_in_room(compiler, Path(folder))
            checked = check(made, origin=version)
            _set_mode(made, os.O_RDONLY)
            made.replace(path)
    except OSError as error:
        raise _refuse_cache(cache, error.strerror or str(error)) from error
    return Library(path, checked.instructions, checked.source_sha256, checked.origin)


class CacheError(PreflightError):
    """The library was built but cannot be kept. Other kernels are no substitute, because they give other weights."""


def _refuse_cache(cache: Path, why: str) -> CacheError:
    return CacheError(
        f"the native kernels cannot be kept in {cache}",
        why=why,
        remedy="free space there, or name another folder of your own by XDG_CACHE_HOME; --kernels stock needs none and "
        "gives other weights",
    )


def _is_own(path: Path) -> bool:
    """Return whether the folder has a library that only this user or root can have written.

    Raises OSError if the folder cannot be read, and CacheError if the folder belongs to somebody else.
    """
    if not path.parent.exists():
        return False
    folder = path.parent.stat()
    if folder.st_uid not in {os.geteuid(), 0}:
        raise _refuse_cache(path.parent, f"it belongs to the user {folder.st_uid}, who could put a program there")
    if not path.exists():
        return False
    file = path.lstat()
    return (
        stat.S_ISREG(file.st_mode)
        and file.st_uid in {os.geteuid(), 0}
        and not file.st_mode & _OTHERS_WRITE
        and not folder.st_mode & stat.S_IWOTH
    )


_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOM: Final = 16 << 20
"""Bytes that the objects and the library take, with some to spare."""


def _prepare_cache(cache: Path) -> None:
    """Make the folder of the libraries, in which nobody else can write. Raises OSError if its disk is full."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o755)
    if cache.stat().st_mode & _OTHERS_WRITE:
        _set_mode(cache, os.O_RDONLY | os.O_DIRECTORY)
    with tempfile.TemporaryFile(dir=cache) as probe:
        os.posix_fallocate(probe.fileno(), 0, _ROOM)


def _set_mode(path: Path, flags: int) -> None:
    """Let all read and run what lies there, and this user alone change it. Raises OSError if it is a link."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(handle, 0o755)
    finally:
        os.close(handle)


_NO_ROOM: Final = re.compile("No space left on device|Disk quota exceeded|Read-only file system")


def _compile_in_room(compiler: str, folder: Path) -> Path:
    """Compile the library in a folder of the cache. Raises CacheError if its disk becomes full meanwhile."""
    try:
        return compile_library(compiler, folder)
    except PreflightError as error:
        if _NO_ROOM.search(error.why):
            raise _refuse_cache(folder.parent, error.why) from error
        raise


def find_target(compiler: str) -> str:
    """Return which of PROCESSORS a compiler compiles for. Raises a PreflightError if there is none."""
    target = _run([compiler, "-dumpmachine"]).strip()
    name = target.partition("-")[0]
    if name not in PROCESSORS:
        raise PreflightError(
            f"{compiler} cannot build the native kernels",
            why=f"they are for {_KINDS} processors, and it compiles for {target or 'an unknown one'}",
            remedy=f"give another compiler by CXX, or {_REMEDY}",
        )
    return name


def compile_library(compiler: str, folder: Path) -> Path:
    """Compile the library in a folder; returns its path. Raises a PreflightError with the compiler's first error."""
    kind = PROCESSORS[find_target(compiler)]
    words = (compiler, *FLAGS, *kind.flags)
    define = f'-DNATIVE_SOURCE="{digest_source()}"'
    plain = [path for path in sorted(SOURCE.glob("*.cpp")) if path.name != INNER]
    objects = [(path, folder / f"{path.stem}.o", [define]) for path in plain]
    for name, flags in kind.instructions.items():
        objects.append((SOURCE / INNER, folder / f"{name}.o", [*flags, f"-DNATIVE_PRIMITIVES={name.upper()}"]))
    with ThreadPoolExecutor(count_cores()) as pool:
        list(pool.map(lambda unit: _run([*words, *unit[2], "-c", str(unit[0]), "-o", str(unit[1])], folder), objects))
    library = folder / "kernels.so"
    _run([compiler, *LINK_FLAGS, *(str(unit[1]) for unit in objects), "-o", str(library)], folder)
    return library


def _run(argv: list[str], scratch: Path | None = None) -> str:
    """Run a compiler, whose temporary files go into `scratch`; returns what it says. Raises a PreflightError."""
    variables = {name: value for name, value in os.environ.items() if name not in _STEERING}
    variables |= {"TMPDIR": str(scratch)} if scratch else {}
    try:
        # By these variables, or from the current folder, it would take other headers and programs, or write files.
        done = subprocess.run(argv, capture_output=True, text=True, check=False, env=variables, cwd="/")
    except OSError as error:
        raise PreflightError(f"{argv[0]} does not run", why=error.strerror or str(error), remedy=_REMEDY) from error
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if _NO_ROOM.search(line)] or [
            line for line in lines if "error" in line.lower()
        ]
        raise PreflightError(
            f"{argv[0]} cannot build the native kernels",
            why=(errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[0],
            remedy=f"give another compiler by CXX, or {_REMEDY}",
        )
    return done.stdout


_CHECK: Final = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
for name in ("toolkit_instructions", "toolkit_source", "toolkit_check"):
    getattr(library, name).restype = ctypes.c_char_p
chosen = library.toolkit_instructions()
found = {name: library.toolkit_check(name.encode()) for name in sys.argv[2:]}
results = {name: value.decode() for name, value in found.items() if value}
print(json.dumps([chosen.decode(), library.toolkit_source().decode(), results]))
"""


def check(path: Path, *, origin: str) -> Library:
    """Compute a small case on each instruction set, in another process. Raises a PreflightError if the bits differ."""
    names = PROCESSORS[platform.machine()].instructions
    argv = [sys.executable, "-I", "-c", _CHECK, str(path), *names]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"the check ended with {done.returncode}"]
        raise PreflightError(f"{path} does not work", why=lines[-1], remedy=f"remove it, or {_REMEDY}")
    instructions, source, results = json.loads(done.stdout)
    if source != digest_source():
        raise PreflightError(
            f"{path} was built from another source", why=f"{source[:12]}, not {digest_source()[:12]}", remedy=_REMEDY
        )
    if not results:
        raise PreflightError(
            f"{path} cannot be checked", why=f"this processor runs none of {', '.join(names)}", remedy=_REMEDY
        )
    wrong = [name for name, digest in results.items() if digest != EXPECTED]
    if wrong:
        raise PreflightError(
            f"{path} computes something else than it should",
            why=f"its check gives {results[wrong[0]]} by {wrong[0]}, not {EXPECTED}",
            remedy=_REMEDY,
        )
    return Library(path, instructions, source, origin)


def find_cache() -> Path:
    """Return the folder of the libraries that were built for this user."""
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(given or "~/.cache").expanduser() / "toolkit" / "kernels"
    except RuntimeError as error:  # HOME is not set, and this user has no entry
        raise _refuse_cache(Path(given or "~/.cache"), "this user has no home") from error


def main() -> int:
    """Build the library as the file that the command line names; check it if it is for this machine."""
    target = Path(sys.argv[1])
    try:
        compiler = find_compiler()
        machine = find_target(compiler)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
            made = compile_library(compiler, Path(folder))
            if machine == platform.machine():
                print(check(made, origin=compiler))
            else:
                print(f"{target} is for {machine}: it is checked there, before it is used")
            made.replace(target)
    except PreflightError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
