"""What a wheel is, found out without installing it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolkit import digest
from toolkit.errors import IntegrityError, UnsupportedError
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
