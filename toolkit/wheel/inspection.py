"""What a wheel is, found out without installing it, and whether it is the one that was asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolkit import capability, digest
from toolkit.errors import CheckError, IntegrityError, UnsupportedError
from toolkit.wheel import archive, buildinfo, library
from toolkit.wheel.buildinfo import BuildInfo

NAMES = frozenset({"tensorflow", "tensorflow-cpu"})


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The facts of a TensorFlow wheel.

    Attributes:
        file: its file name.
        digest: of its bytes.
        bytes, unpacked_bytes: its size, and that of its libraries once unpacked.
        name, version: of the distribution.
        pythons: interpreter tags, such as ``cp311``.
        platforms: platform tags.
        build: what its build wrote down.
        needed: libraries that it loads and does not bring along.
        symbols: highest versions needed of GLIBC, GLIBCXX and CXXABI.
        architectures: GPU code found in its libraries.
    """

    file: str
    digest: str
    bytes: int
    unpacked_bytes: int
    name: str
    version: str
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    build: BuildInfo
    needed: tuple[str, ...]
    symbols: dict[str, str]
    architectures: tuple[str, ...]


def read_identity(path: Path) -> archive.Identity:
    """Name, version and tags of a TensorFlow wheel: a glance, not a check of its bytes.

    Raises:
        UsageError: it is no wheel.
        UnsupportedError: it is another project's.
        IntegrityError: it is damaged.
    """
    with archive.open_wheel(path) as opened:
        _require_tensorflow(opened)
        return opened.identity


def inspect(path: Path) -> Inspection:
    """Read a whole wheel, checking every file against its RECORD.

    A full TensorFlow wheel unpacks to 1.7 GB; its largest library, 1.2 GB, is written to a temporary file on the way.

    Raises:
        UsageError: it is no wheel.
        UnsupportedError: it is not TensorFlow.
        IntegrityError: it is damaged.
    """
    with archive.open_wheel(path) as opened:
        _require_tensorflow(opened)
        found: dict[str, library.Library] = {}
        unpacked = 0
        for name, content in opened.read_members(library.MAGIC):
            try:
                found[name] = library.read(content)
            except ValueError as error:
                raise IntegrityError(
                    f"{path.name} holds a damaged library", why=f"{name}: {error}", remedy=archive.REMEDY
                ) from error
            unpacked += len(content)
        identity, build = opened.identity, _read_build(opened)
    own = {name.rpartition("/")[2] for name in found}
    return Inspection(
        file=path.name,
        digest=digest.digest_file(path),
        bytes=path.stat().st_size,
        unpacked_bytes=unpacked,
        name=identity.name,
        version=identity.version,
        pythons=tuple(sorted(identity.pythons)),
        platforms=tuple(sorted({tag.platform for tag in identity.tags})),
        build=build,
        needed=tuple(sorted({name for item in found.values() for name in item.needed} - own)),
        symbols=_merge(item.symbols for item in found.values()),
        architectures=tuple(sorted({name for item in found.values() for name in item.architectures}, key=_rank)),
    )


def require(
    found: Inspection,
    *,
    tensorflow: str = "",
    python: str = "",
    glibc: str = "",
) -> None:
    """Refuse a wheel that cannot serve.

    Args:
        found: the wheel.
        tensorflow: version that is wanted; empty for any.
        python: version ``X.Y`` of the interpreter that must run it; empty for any.
        glibc: version of the C library that must run it; empty for any.

    Raises:
        UnsupportedError: it is of another version, for another Python, or needs a newer C library.
    """
    if tensorflow and found.version != tensorflow:
        raise UnsupportedError(
            f"{found.file} is TensorFlow {found.version}, not {tensorflow}",
            remedy=f"give --tensorflow {found.version}, or another wheel",
        )
    wanted = f"cp{python.replace('.', '')}"
    if python and wanted not in found.pythons:
        raise UnsupportedError(
            f"{found.file} is not for Python {python}",
            why=f"it is for {', '.join(found.pythons)}, and {wanted} is needed",
            remedy=f"build it with --python {python}, or choose a base image with its Python",
        )
    needed = found.symbols.get("GLIBC", "0")
    if glibc and library.order(needed) > library.order(glibc):
        raise UnsupportedError(
            f"{found.file} needs glibc {needed}, and the base image has {glibc}",
            why="a program runs on the C library it was linked against, or on a newer one",
            remedy="choose a newer base image, or build the wheel on an older one",
        )


def find_mismatches(found: Inspection, *, cuda: str, cudnn: str, capabilities: Iterable[str]) -> list[str]:
    """Where a wheel differs from the CUDA set that it was to be built for; nothing where it does not.

    Capabilities are looked for twice: in what the build wrote down, and in the machine code itself.
    """
    asked = list(capabilities)
    if not cuda:
        return ["it is a CUDA build, and a CPU build was asked for"] if found.build.is_cuda else []
    if not found.build.is_cuda:
        return ["it is a CPU build"]
    mismatches = []
    if found.build.cuda != cuda:
        mismatches.append(f"it was built with CUDA {found.build.cuda}, not {cuda}")
    # Hermetic builds write the major version of cuDNN only.
    if found.build.cudnn.split(".") != cudnn.split(".")[: found.build.cudnn.count(".") + 1]:
        mismatches.append(f"it was built with cuDNN {found.build.cudnn}, not {cudnn}")
    if sorted(found.build.capabilities) != sorted(asked):
        mismatches.append(f"its build_info names {', '.join(found.build.capabilities)}, not {', '.join(asked)}")
    wanted = {f"sm_{capability.number(item).replace('.', '').rstrip('af')}" for item in asked}
    missing = sorted(wanted - set(found.architectures))
    if missing:
        held = ", ".join(found.architectures) or "none"
        mismatches.append(f"its libraries hold no machine code for {', '.join(missing)}; they hold {held}")
    return mismatches


def check(found: Inspection, *, cuda: str, cudnn: str, capabilities: Iterable[str]) -> None:
    """Raises:
    CheckError: the wheel is not for the CUDA set that it was to be built for.
    """
    mismatches = find_mismatches(found, cuda=cuda, cudnn=cudnn, capabilities=capabilities)
    if mismatches:
        raise CheckError(
            f"{found.file} is not the wheel that was asked for",
            why="; ".join(mismatches),
            remedy="look into the build log for the configuration that Bazel was given",
        )


def _require_tensorflow(opened: archive.Archive) -> None:
    if opened.identity.name not in NAMES:
        raise UnsupportedError(
            f"{opened.path.name} is not TensorFlow",
            why=f"it is {opened.identity.name} {opened.identity.version}",
            remedy="give a tensorflow wheel",
        )


def _read_build(opened: archive.Archive) -> BuildInfo:
    text = opened.read_text(buildinfo.MEMBER)
    if text is None:
        raise UnsupportedError(
            f"{opened.path.name} is not a build of TensorFlow",
            why=f"it has no {buildinfo.MEMBER}",
            remedy="give the wheel that TensorFlow's own build makes",
        )
    try:
        return buildinfo.parse(text)
    except ValueError as error:
        raise IntegrityError(
            f"{opened.path.name} has an unreadable build_info", why=str(error), remedy=archive.REMEDY
        ) from error


def _merge(each: Iterable[dict[str, str]]) -> dict[str, str]:
    highest: dict[str, str] = {}
    for symbols in each:
        for name, version in symbols.items():
            highest[name] = max(version, highest.get(name, version), key=library.order)
    return dict(sorted(highest.items()))


def _rank(architecture: str) -> tuple[int, str]:
    prefix, _, number = architecture.partition("_")
    return int(number), prefix
