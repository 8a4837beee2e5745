"""Reads the facts of a wheel without running its code, and compares them with what was asked for and what runs it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.version import Version

from toolkit.base import digest, manifest, project
from toolkit.base.errors import CheckError, IntegrityError, UnsupportedError
from toolkit.checks.gpu_rules import compare_cudnn
from toolkit.versions import numbers
from toolkit.versions.set import FIRST_PLATFORM, Set
from toolkit.versions.table import load_table
from toolkit.wheel import archive, elf

_RULES = Path(__file__).parents[1] / "checks" / "gpu_rules.py"
_NAME = "tensorflow"
_STUBS = ("libcuda.so", "libnvrtc-builtins.so")
"""Libraries of the driver and of one CUDA release: a wheel that is linked to them fails to import on other machines."""

BUILD_INFO = "tensorflow/python/platform/build_info.py"


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """Values of the module ``build_info``. They are empty if the build wrote none, as a CPU build does."""

    is_cuda: bool = False
    cuda: str = ""  # CUDA release, such as ``12.6.1``
    cudnn: str = ""  # cuDNN version as far as the build knows it: hermetic builds write ``9``
    capabilities: tuple[str, ...] = ()  # such as ``sm_75``, ``compute_75``


def parse_build_info(source: str) -> BuildInfo:
    """Parse the module's text. Raises ValueError if there is no assignment of literal pairs to ``build_info``."""
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


@dataclass(frozen=True, kw_only=True)
class Inspection:
    file: str  # its file name
    digest: str  # the digest of its bytes
    bytes: int  # its size
    unpacked_bytes: int  # the size of its libraries once unpacked
    name: str  # the name of the distribution
    version: str
    pythons: tuple[str, ...]  # interpreter tags, such as ``cp311``
    platforms: tuple[str, ...]  # platform tags
    build: BuildInfo  # the values of its build_info
    needed: tuple[str, ...]  # libraries that it loads and does not bring along
    symbols: dict[str, str]  # highest versions needed of GLIBC, GLIBCXX and CXXABI
    architectures: tuple[str, ...]  # GPU code found in its libraries

    @property
    def public_version(self) -> str:
        """The version without the local part that a graft adds."""
        return Version(self.version).public

    @property
    def python_versions(self) -> tuple[str, ...]:
        """The Pythons ``X.Y`` that it is for, lowest first."""
        return tuple(numbers.sort(numbers.find_pythons(" ".join(self.pythons))))


def inspect(path: Path) -> Inspection:
    """Check every file of a wheel against its RECORD and return its facts, which are cached by the wheel's content.

    Each library, of up to 1.2 GB, is written to a temporary file meanwhile. Raises UsageError if the file is not a
    wheel, UnsupportedError if it is not TensorFlow, and IntegrityError if it is damaged.
    """
    if not path.is_file():
        return _inspect(path, "")
    content = digest.digest_file(path)
    # The result follows from the file's name and content, and from this code.
    code = digest.digest_paths(project.ROOT, [Path(__file__).parent, _RULES])
    key = digest.digest_value(["inspection", path.name, content, code])
    return restore(digest.cached(key, lambda: asdict(_inspect(path, content))))


def restore(value: Mapping[str, Any]) -> Inspection:
    """Return the facts of a wheel from its record. Raises LookupError, TypeError or AttributeError for another form."""

    def freeze(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {name: tuple(item) if isinstance(item, list) else item for name, item in fields.items()}

    return Inspection(**freeze({**value, "build": BuildInfo(**freeze(value["build"]))}))


def _inspect(path: Path, content: str) -> Inspection:
    with archive.open_wheel(path) as wheel:
        require_tensorflow(wheel)
        libraries: dict[str, elf.Library] = {}
        unpacked = 0
        for name, member in wheel.read_members(elf.MAGIC):
            try:
                libraries[name] = elf.read(member)
            except ValueError as error:
                raise IntegrityError(
                    f"{path.name} holds a damaged library", why=f"{name}: {error}", remedy=archive.REMEDY
                ) from error
            unpacked += len(member)
        identity, build = wheel.identity, _read_build(wheel)
    platforms = {tag.platform for tag in identity.tags}
    for name, library in libraries.items():
        if library.machine and not all(platform.endswith(f"_{library.machine}") for platform in platforms):
            raise IntegrityError(
                f"{path.name} holds a library for another processor",
                why=f"it is for {', '.join(sorted(platforms))}, and {name} for {library.machine}",
                remedy="build it again; a compiler for the wrong machine made a part of it",
            )
    names = {name.rpartition("/")[2] for name in libraries}
    symbols = chain.from_iterable(library.symbols.items() for library in libraries.values())
    architectures = {name for library in libraries.values() for name in library.architectures}
    return Inspection(
        file=path.name,
        digest=content,
        bytes=path.stat().st_size,
        unpacked_bytes=unpacked,
        name=identity.name,
        version=identity.version,
        pythons=tuple(sorted(identity.pythons)),
        platforms=tuple(sorted(platforms)),
        build=build,
        needed=tuple(sorted({name for library in libraries.values() for name in library.needed} - names)),
        symbols=dict(sorted(elf.find_highest(symbols).items())),
        architectures=tuple(sorted(architectures, key=_rank)),
    )


def require_tensorflow(wheel: archive.Archive) -> None:
    """Raise UnsupportedError if a wheel is not TensorFlow."""
    if wheel.identity.name not in manifest.PUBLISHED:
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


def _rank(architecture: str) -> tuple[int, str]:
    prefix, _, number = architecture.partition("_")
    return int(number), prefix


def require_match(wheel: Inspection, spec: Mapping[str, str]) -> None:
    mismatches = list(find_mismatches(wheel, spec))
    if mismatches:
        raise CheckError(
            f"{wheel.file} is not the wheel that was asked for",
            why="; ".join(mismatches),
            remedy="the build log shows the configuration that Bazel was given",
        )


def find_mismatches(wheel: Inspection, spec: Mapping[str, str]) -> Iterator[str]:
    if wheel.name != _NAME:
        yield f"its name is {wheel.name}, not {_NAME}"
    if wheel.public_version != spec["tensorflow"]:
        yield f"it is TensorFlow {wheel.version}, not {spec['tensorflow']}"
    machine = load_table().platform(spec.get("platform", FIRST_PLATFORM)).machine
    if not all(name.endswith(f"_{machine}") for name in wheel.platforms):
        yield f"it is for {', '.join(wheel.platforms)}, not {machine}"
    if glibc := spec.get("glibc"):
        wanted_platform = f"manylinux_{glibc.replace('.', '_')}_{machine}"
        if wanted_platform not in wheel.platforms:
            yield f"its tag is {', '.join(wheel.platforms)}, not {wanted_platform}"
    if spec["python"] not in wheel.python_versions:
        found = ", ".join(wheel.python_versions or wheel.pythons)
        yield f"it is for Python {found}, not {spec['python']} (tensorflow#72166)"
    linked = [name for name in wheel.needed if name.startswith(_STUBS)]
    if linked:
        yield f"it is linked to {', '.join(linked)}, which it must load by itself (tensorflow#86413)"
    if wheel.build.is_cuda != bool(spec.get("cuda")):
        yield "it is a build for CUDA" if wheel.build.is_cuda else "it is a CPU build"
    elif wheel.build.is_cuda:
        yield from _find_other_cuda(wheel, spec)


def _find_other_cuda(wheel: Inspection, spec: Mapping[str, str]) -> Iterator[str]:
    if wheel.build.cuda != spec["cuda"]:
        yield f"it was built with CUDA {wheel.build.cuda}, not {spec['cuda']}"
    # Hermetic builds write the major version of cuDNN only.
    if wheel.build.cudnn.split(".") != spec["cudnn"].split(".")[: wheel.build.cudnn.count(".") + 1]:
        yield f"it was built with cuDNN {wheel.build.cudnn}, not {spec['cudnn']}"
    capabilities = spec["capabilities"].split(",")
    if sorted(wheel.build.capabilities) != sorted(capabilities):
        named = ", ".join(wheel.build.capabilities) or "no capabilities"
        yield f"its build_info names {named}, not {', '.join(capabilities)}"
    wanted = {f"sm_{numbers.strip_suffix(numbers.to_plain(item)).replace('.', '')}" for item in capabilities}
    missing = sorted(wanted - set(wheel.architectures))
    if missing:
        present = ", ".join(wheel.architectures) or "none at all"
        yield f"its libraries hold no machine code for {', '.join(missing)}, but {present}"


def require_runnable(
    wheel: Inspection,
    wanted: Set,
    *,
    built_cudnn: str = "",
    glibc: str = "",
    base_python: str = "",
    machine: str = "",
) -> None:
    """Check that an environment can run a wheel. Raises UnsupportedError if it cannot.

    An empty value is unknown. ``glibc`` and ``base_python`` are of the base image. In a set without CUDA, a wheel
    computes on the CPU. ``machine``: its processor's name. ``built_cudnn``: the release that the wheel was built
    for, from its manifest.
    """
    if wheel.public_version != wanted.tensorflow:
        raise UnsupportedError(
            f"{wheel.file} is TensorFlow {wheel.version}, not {wanted.tensorflow}",
            remedy=f"give --tensorflow {wheel.public_version}, or another wheel",
        )
    require_python(wheel, wanted.python, remedy=f"build it with --python {wanted.python}")
    if machine and not all(name == "any" or name.endswith(f"_{machine}") for name in wheel.platforms):
        raise UnsupportedError(
            f"{wheel.file} is for {', '.join(wheel.platforms)}, not {machine}",
            remedy="give a wheel for this platform, or --platform with that of the wheel",
        )
    if base_python and base_python != wanted.python:
        raise UnsupportedError(
            f"{wheel.file} is for Python {wanted.python}, and the base image has {base_python}",
            remedy=f"choose a base image with Python {wanted.python}: --base-image",
        )
    if wanted.cuda and wheel.build.cuda and elf.order(wheel.build.cuda) > elf.order(wanted.cuda):
        raise UnsupportedError(
            f"{wheel.file} is built for CUDA {wheel.build.cuda}, and the run-time set is of {wanted.cuda}",
            why="CUDA's libraries run code that was built for them or for an older release of the same major version",
            remedy=f"give --cuda {wheel.build.cuda}, or another wheel",
        )
    if compare_cudnn(built_cudnn, wanted.cudnn):
        raise UnsupportedError(
            f"{wheel.file} is built for cuDNN {built_cudnn}, and the run-time set has {wanted.cudnn}",
            why="TensorFlow loads the major version that it was built for, and no older minor version",
            remedy=f"give --cudnn {built_cudnn} with its CUDA, or another wheel",
        )
    needed = wheel.symbols.get("GLIBC", "0")
    if glibc and elf.order(needed) > elf.order(glibc):
        raise UnsupportedError(
            f"{wheel.file} needs glibc {needed}, and the base image has {glibc}",
            why="a program runs on the C library that it was linked against, or on a newer one",
            remedy="choose a newer base image with --base-image, or build the wheel with --glibc or on an older one",
        )


def require_python(wheel: Inspection, python: str, remedy: str) -> None:
    """Raise an UnsupportedError if a wheel is not for a Python ``X.Y``."""
    if python not in wheel.python_versions:
        why = f"it is for Python {', '.join(wheel.python_versions or wheel.pythons)}, and {python} is needed"
        raise UnsupportedError(f"{wheel.file} is not for Python {python}", why=why, remedy=remedy)


@dataclass(frozen=True, kw_only=True)
class Audit:
    platform: str  # oldest tag that holds, such as ``manylinux_2_38_x86_64``; ``linux_…`` if none of them holds
    outside: tuple[str, ...]  # libraries that it needs and that no policy promises


def require_honest(wheel: Inspection, audited: Audit) -> None:
    """Raise CheckError if a tag of a wheel promises an older system than its libraries need (PEP 600)."""
    needed = _read_glibc(audited.platform)
    promised = [name for name in wheel.platforms if _read_glibc(name)]
    lies = [name for name in promised if not needed or elf.order(_read_glibc(name)) < elf.order(needed)]
    if not lies:
        return
    symbols = ", ".join(f"{name} {version}" for name, version in wheel.symbols.items())
    outside = f", and {', '.join(audited.outside)}" if audited.outside else ""
    raise CheckError(
        f"{wheel.file} needs a newer system than its tag {lies[0]} promises",
        why=f"it needs {symbols}{outside}, which fits {audited.platform}",
        remedy="the build log shows what it was linked to; without --glibc the tag promises nothing",
    )


def _read_glibc(platform: str) -> str:
    """Return the version of glibc in a platform tag; empty for one that promises none."""
    parts = platform.split("_")
    return ".".join(parts[1:3]) if parts[0] == "manylinux" else ""


def describe_host(facts: Mapping[str, Any]) -> str:
    """Return the C library that a host needs, by the inspected facts of a wheel, or an empty text if it is unknown."""
    versions = [facts["symbols"].get("GLIBC", ""), *(_read_glibc(name) for name in facts["platforms"])]
    needed = max(filter(None, versions), key=elf.order, default="")
    return f"the host needs glibc {needed} or later" if needed else ""


def audit(path: Path) -> Audit:
    """Return the oldest platform on which a wheel runs. This takes a minute and a half for a full TensorFlow."""
    # Imported here because it is slow, and only a finished build is audited.
    from auditwheel.error import AuditwheelError
    from auditwheel.wheel_abi import NonPlatformWheelError, analyze_wheel_abi
    from auditwheel.wheeltools import get_wheel_architecture

    try:
        report = analyze_wheel_abi(
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
    outside = report.external_refs[report.policies.highest.name].libs
    return Audit(platform=report.overall_policy.name, outside=tuple(sorted(outside)))
