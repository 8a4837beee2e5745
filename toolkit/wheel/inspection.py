"""Reads the facts of a wheel without installing it.

TensorFlow's ``build_info.py``, one assignment of literal pairs, is untrusted code: it is parsed and never executed.
"""

import ast
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolkit import digest, project
from toolkit.errors import IntegrityError, UnsupportedError
from toolkit.wheel import archive, library

_RULES = Path(__file__).parents[1] / "smoke" / "inside" / "gpu_rules.py"
BUILD_INFO = "tensorflow/python/platform/build_info.py"


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """The relevant values of build_info; empty if the build wrote none, such as a CPU build."""

    is_cuda: bool = False
    cuda: str = ""  # CUDA release, such as ``12.6.1``
    cudnn: str = ""  # cuDNN version as far as the build knows it: hermetic builds write ``9``
    capabilities: tuple[str, ...] = ()  # such as ``sm_75``, ``compute_75``


def parse_build_info(source: str) -> BuildInfo:
    """Parse the module's text. Raises ValueError: there is no assignment of literal pairs to ``build_info``."""
    try:
        values = _evaluate(_find_value(ast.parse(source)))
        return BuildInfo(
            is_cuda=bool(values.get("is_cuda_build")),
            cuda=_text(values.get("cuda_version", "")),
            cudnn=_text(values.get("cudnn_version", "")),
            capabilities=tuple(_text(item) for item in values.get("cuda_compute_capabilities", ())),
        )
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(f"build_info cannot be read: {error}") from error


def _find_value(module: ast.Module) -> ast.expr:
    for statement in module.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="build_info")], value=ast.Call(args=[argument], keywords=[])):
                return argument
            case ast.Assign(targets=[ast.Name(id="build_info")], value=value):
                return value
    raise ValueError("nothing is assigned to build_info")


def _evaluate(value: ast.expr) -> dict[str, list[str] | str]:
    # literal_eval builds constants and containers, and nothing else.
    return dict(ast.literal_eval(value))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text is expected, not {value!r:.40}")
    return value


NAMES = frozenset({"tensorflow", "tensorflow-cpu"})


@dataclass(frozen=True, kw_only=True)
class Inspection:
    file: str  # its file name
    digest: str  # of its bytes
    bytes: int  # bytes, unpacked_bytes: its size, and that of its libraries once unpacked
    unpacked_bytes: int
    name: str  # name, version: of the distribution
    version: str
    pythons: tuple[str, ...]  # interpreter tags, such as ``cp311``
    platforms: tuple[str, ...]  # platform tags
    build: BuildInfo  # the values of its build_info
    needed: tuple[str, ...]  # libraries that it loads and does not bring along
    symbols: dict[str, str]  # highest versions needed of GLIBC, GLIBCXX and CXXABI
    architectures: tuple[str, ...]  # GPU code found in its libraries


def inspect(path: Path) -> Inspection:
    """Check every file of a wheel against its RECORD and return its facts, which are cached by the wheel's content.

    Its largest library, 1.2 GB, is written to a temporary file meanwhile. Raises UsageError: it is not a wheel;
    UnsupportedError: it is not TensorFlow; IntegrityError: it is damaged.
    """
    if not path.is_file():
        return _inspect(path, "")
    content = digest.digest_file(path)
    # The result follows from the file's name and content, and from this code.
    code = digest.digest_paths(project.ROOT, [Path(__file__).parent, _RULES])
    key = digest.digest_value(["inspection", path.name, content, code])
    return _from_json(digest.recall(key, lambda: asdict(_inspect(path, content))))


def _from_json(value: dict[str, Any]) -> Inspection:
    def restore(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(item) if isinstance(item, list) else item for name, item in fields.items()}

    return Inspection(**restore({**value, "build": BuildInfo(**restore(value["build"]))}))


def _inspect(path: Path, content: str) -> Inspection:
    with archive.open_wheel(path) as wheel:
        _require_tensorflow(wheel)
        found: dict[str, library.Library] = {}
        unpacked = 0
        for name, member in wheel.read_members(library.MAGIC):
            try:
                found[name] = library.read(member)
            except ValueError as error:
                raise IntegrityError(
                    f"{path.name} holds a damaged library", why=f"{name}: {error}", remedy=archive.REMEDY
                ) from error
            unpacked += len(member)
        identity, build = wheel.identity, _read_build(wheel)
    own = {name.rpartition("/")[2] for name in found}
    return Inspection(
        file=path.name,
        digest=content,
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


def _require_tensorflow(wheel: archive.Archive) -> None:
    if wheel.identity.name not in NAMES:
        raise UnsupportedError(
            f"{wheel.path.name} is not TensorFlow",
            why=f"it is {wheel.identity.name} {wheel.identity.version}",
            remedy="give a tensorflow wheel",
        )


def _read_build(wheel: archive.Archive) -> BuildInfo:
    text = wheel.read_text(BUILD_INFO)
    if text is None:
        raise UnsupportedError(
            f"{wheel.path.name} is not a build of TensorFlow",
            why=f"it has no {BUILD_INFO}",
            remedy="give the wheel that TensorFlow's own build makes",
        )
    try:
        return parse_build_info(text)
    except ValueError as error:
        raise IntegrityError(
            f"{wheel.path.name} has an unreadable build_info", why=str(error), remedy=archive.REMEDY
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


@dataclass(frozen=True, kw_only=True)
class Audit:
    platform: str  # tag that the wheel is consistent with, such as ``manylinux_2_38_x86_64``; ``linux_…`` if with none
    outside: tuple[str, ...]  # libraries that it needs and that no policy promises


def audit(path: Path) -> Audit:
    """Return the oldest platform on which a wheel runs, after a minute and a half for a full TensorFlow."""
    # Imported here because it is slow, and only a finished build is audited.
    from auditwheel.error import AuditwheelError
    from auditwheel.wheel_abi import NonPlatformWheelError, analyze_wheel_abi
    from auditwheel.wheeltools import get_wheel_architecture

    try:
        found = analyze_wheel_abi(
            None,
            get_wheel_architecture(path.name),
            path,
            frozenset(),
            disable_isa_ext_check=True,
            allow_graft=False,
        )
    except NonPlatformWheelError:
        return Audit(platform="any", outside=())
    except (AuditwheelError, OSError, ValueError) as error:
        raise IntegrityError(f"auditwheel cannot read {path.name}", why=str(error), remedy="build it again") from error
    outside = found.external_refs[found.policies.highest.name].libs
    return Audit(platform=found.overall_policy.name, outside=tuple(sorted(outside)))
