"""Reads table.yaml, which versions work together, with sources, and checks that it is consistent."""

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from toolkit.base.errors import ToolkitError, UnsupportedError
from toolkit.checks.nvidia import find_wheels
from toolkit.versions import numbers
from toolkit.versions.set import LIBRARIES, Set

# libyaml is 20 times faster than the Python loader; wheels of PyYAML have it, some distributions' packages do not.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT: Final = "tag:yaml.org,2002:str"
_SPAN = re.compile(r"(?P<since>>=[0-9.]+)?,?(?P<before><[0-9.]+)?")
PATH = Path(__file__).with_name("table.yaml")


@dataclass(frozen=True, kw_only=True)
class Source:
    what: str
    date: str


@dataclass(frozen=True, kw_only=True)
class Default(Set):
    capabilities: tuple[str, ...]
    base_image: str
    source_date_epoch: int


def affects(when: Mapping[str, str], values: Mapping[str, Sequence[str]]) -> bool:
    """Return whether some version of each product is in the specifier that ``when`` has for it."""
    return all(any(_is_within(value, span) for value in values[name]) for name, span in when.items())


@functools.cache
def _is_within(version: str, span: str) -> bool:
    number, bounds = numbers.to_number(version), split_span(span)
    above = not bounds["since"] or number >= numbers.to_number(bounds["since"])
    return above and (not bounds["before"] or number < numbers.to_number(bounds["before"]))


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler of the toolchain stage, for the versions in ``when``, and the capabilities that it compiles for."""

    clang: str  # major version
    capabilities: tuple[str, ...]
    source: str  # why
    when: Mapping[str, str] = field(default_factory=dict)

    def serves(self, tensorflow: str, cuda: str) -> bool:
        when = self.when if cuda else {name: span for name, span in self.when.items() if name != "cuda"}
        return affects(when, {"tensorflow": [tensorflow], "cuda": [cuda]})


NEEDED = ("bazel", "clang", "target", "cuda", "cudnn")


@dataclass(frozen=True, kw_only=True)
class BaseRow:
    """A distribution that a base image may be of."""

    codename: str
    name: str  # as a reference may spell it, ``debian:12``
    clang: tuple[str, ...]  # compilers of ``Table.toolchains`` that it packages
    gcc: str  # major version of the g++ whose C++ library is used
    glibc: str
    source: str
    snapshots: bool = False  # whether its apt reads Debian's snapshot archive
    sysroots: tuple[str, ...] = ()  # older versions of glibc that wheels can be built for


@dataclass(frozen=True, kw_only=True)
class TensorflowRow:
    version: str
    tested: bool  # whether this project has run it
    python: tuple[str, ...]  # python, cuda, cudnn: exact strings that the build accepts
    sources: tuple[str, ...]
    # Only a row with `missing` may lack the five fields of NEEDED.
    bazel: str = ""
    clang: str = ""  # the compiler that upstream documents; the build stage has another (:class:`Toolchain`)
    target: str = ""  # Bazel target of the wheel, below //tensorflow/tools/pip_package
    cuda: tuple[str, ...] = ()
    cudnn: tuple[str, ...] = ()
    nccl: str = ""  # version in the table, if known
    # CUDA and cuDNN that the wheel's own extra would install, if known
    and_cuda: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""  # of the version's tag, if known
    tarball_sha256: str = ""  # of the tag's source archive, if known
    source_date_epoch: int = 0  # the day of its published wheel, 00:00 UTC; 0: the table's default
    flags: tuple[str, ...] = ()  # Bazel's flags for this version
    beside: tuple[str, ...] = ()  # packages that its wheel no longer brings, and that the training job needs
    candidate: str = ""  # the newest published wheel, while the version itself is not released
    missing: tuple[str, ...] = ()  # what must be known or made before this version can be used

    def offers(self, library: str) -> tuple[str, ...]:
        """Return the releases of one of NVIDIA's libraries in its tables."""
        return tuple(getattr(self, library))

    @property
    def lacks(self) -> tuple[str, ...]:
        """Everything for which the row is refused; empty for a complete one."""
        release = [f"a release: {self.candidate} is the newest wheel"] if self.candidate else []
        absent = [name for name in NEEDED if not getattr(self, name)]
        return (*release, *self.missing, *([f"in the version table: {', '.join(absent)}"] if absent else []))


@dataclass(frozen=True, kw_only=True)
class CudaRow:
    version: str
    redist: str  # sha256 of NVIDIA's redistrib JSON
    capabilities: tuple[str, ...]  # compute capabilities that its ptxas assembles
    sources: tuple[str, ...]
    driver: str = ""  # Linux driver that NVIDIA names for it; empty if unknown
    driver_min: str = ""  # oldest driver that runs it by minor-version compatibility; empty if unknown
    # versions of its run-time wheels; empty if not looked up
    components: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # further wheels of ``parts``
    parts: str = ""  # locked set of the toolchain's proof, a file of docker/requirements; empty if none is locked
    windows_driver: str = ""  # windows_driver, windows_driver_min: the same drivers, as WSL2 shows them
    windows_driver_min: str = ""


@dataclass(frozen=True, kw_only=True)
class CudnnRow:
    """One cuDNN release: sha256 of its redistrib JSON and, if known, the version of its wheel."""

    version: str
    redist: str
    sources: tuple[str, ...]
    wheel: str = ""


@dataclass(frozen=True, kw_only=True)
class BazelRow:
    """One Bazel release and the sha256 of its binary for each architecture."""

    version: str
    sha256: Mapping[str, str]
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class PlatformRow:
    """A platform, as container engines name it, and what upstream and NVIDIA call it."""

    name: str  # ``linux/arm64``
    machine: str  # the kernel's name, ``aarch64``
    bazel: str  # the end of the name of Bazel's binary, and the key of its hash
    redist: str  # in NVIDIA's redistrib JSON
    cpu: str  # package that is the published CPU wheel
    gpu_code: bool  # whether published wheels have code for a GPU
    sources: tuple[str, ...]
    issues: tuple[str, ...] = ()  # where users ask for it
    when: Mapping[str, str] = field(default_factory=dict)  # versions of TensorFlow that are built there
    why: str = ""  # why not the others
    untried: str = ""  # what of it was not run; empty if it was

    @property
    def shown(self) -> str:
        return f"{self.name} ({self.machine})"


@dataclass(frozen=True, kw_only=True)
class PublishedCode:
    """The GPU code of TensorFlow's published wheels."""

    cuda: str  # release that they are built with
    capabilities: tuple[str, ...]
    generated: tuple[str, ...]  # machine code of the kernels that MLIR generated
    issues: tuple[str, ...]  # reports that their PTX fails
    graft: Mapping[str, int]  # seconds of processor time of a graft for one GPU, and bytes of its wheel


@dataclass(frozen=True, kw_only=True)
class Locked:
    """A locked set, docker/requirements/NAME.txt, that installs a published wheel."""

    tensorflow: str
    python: tuple[str, ...]
    requirements: str
    cuda: str = ""
    cudnn: str = ""
    glibc: str = ""  # the oldest that its TensorFlow and CUDA run on; empty if it is not known

    def choose(self, python: str) -> Set:
        """Return its versions for one Python."""
        return Set.of({**vars(self), "python": python})

    @property
    def libraries(self) -> Set:
        return self.choose("").libraries

    def take(self, libraries: Set) -> "Locked":
        """Return it with other libraries of NVIDIA."""
        return replace(self, **{name: getattr(libraries, name) for name in LIBRARIES})

    def serves(self, asked: Set) -> bool:
        """Return whether it has the versions that were asked for."""
        return asked.python in {"", *self.python} and self.choose(asked.python).keeps(asked)


@dataclass(frozen=True, kw_only=True)
class DriverBranch:
    """The last branch of drivers that knows the cards of some capabilities."""

    capability: str  # a specifier such as ``<7.5``
    last: str
    next: str  # the branch after it
    install: tuple[str, ...]  # the branches that know these cards and run CUDA 12

    def affects(self, capability: str) -> bool:
        return affects({"capability": self.capability}, {"capability": [numbers.strip_suffix(capability)]})


@dataclass(frozen=True, kw_only=True)
class JetsonRow:
    """A release of Jetson Linux."""

    release: str  # ``R36``
    cuda: str  # of its JetPack, ``12.6``
    capability: str = ""  # of the boards that it is for; empty where no CUDA of the table is that of its JetPack


def split_span(span: str) -> dict[str, str]:
    """Return the bounds of a specifier of ``when``: ``since`` is in it, ``before`` is not."""
    match = _SPAN.fullmatch(span)
    return {name: value.lstrip("<>=") for name, value in match.groupdict("").items()} if match else {}


@dataclass(frozen=True, kw_only=True)
class Failure:
    id: str
    issues: tuple[str, ...]
    symptom: str
    ours: str  # what this project does about it
    flags: tuple[str, ...] = ()  # Bazel's flags that avoid it
    # for ``tensorflow``, ``cuda``, ``cudnn`` and ``capability``, a specifier of the versions affected
    when: Mapping[str, str] = field(default_factory=dict)
    refuse: bool = False  # whether a build is refused because of it

    def affects(self, **values: Sequence[str]) -> bool:
        return affects(self.when, values)


@dataclass(frozen=True, kw_only=True)
class Advisory:
    """A published security advisory of TensorFlow."""

    id: str
    affected: tuple[str, ...]  # versions of TensorFlow in the table
    what: str
    sources: tuple[str, ...]
    fixed: str = ""  # the first version without it, if known
    ours: str = ""  # what this project does about it
    severity: Literal["", "low", "medium", "high", "critical"] = ""  # as a source says it, if one does


@dataclass(frozen=True, kw_only=True)
class Table:
    updated: str
    sources: Mapping[str, Source]
    default: Default
    toolchains: tuple[Toolchain, ...]
    bases: Mapping[str, BaseRow]  # by codename
    platforms: Mapping[str, PlatformRow]
    tensorflow_rows: Mapping[str, TensorflowRow]  # the complete ones
    incomplete: Mapping[str, TensorflowRow]
    cuda_rows: Mapping[str, CudaRow]
    cudnn_rows: Mapping[str, CudnnRow]
    bazel_rows: Mapping[str, BazelRow]
    published: tuple[Locked, ...]
    job_glibc: str  # the oldest that the packages of the training job run on
    driver_branches: tuple[DriverBranch, ...]
    jetson: Mapping[str, JetsonRow]  # by release
    published_code: PublishedCode
    failures: tuple[Failure, ...]
    advisories: Mapping[str, Advisory]  # by id

    @property
    def libraries(self) -> dict[str, Mapping[str, "CudaRow | CudnnRow"]]:
        """The releases of each of NVIDIA's libraries that has a version of its own, by its name in :class:`Set`."""
        return {name: getattr(self, f"{name}_rows") for name in LIBRARIES}

    def list_advisories(self, tensorflow: str) -> tuple[Advisory, ...]:
        """Return the published advisories of a version."""
        return tuple(item for item in self.advisories.values() if tensorflow in item.affected)

    def find_newest(self, *, cuda: bool) -> Locked:
        """Return the newest set of a published wheel, for GPUs or processors; if one can be, without advisories."""
        items = [item for item in self.published if bool(item.cuda) == cuda]
        return max(
            items, key=lambda item: (not self.list_advisories(item.tensorflow), numbers.to_number(item.tensorflow))
        )

    def find_base(self, reference: str) -> BaseRow | None:
        """Return the distribution that an image's reference names by a word, or None."""
        words = re.split(r"[/:@-]", reference)
        named = (row for row in self.bases.values() if row.codename in words or row.name in reference)
        return next(named, None)

    def platform(self, name: str) -> PlatformRow:
        """Return the row of a platform. Raises UnsupportedError if it is not in the table."""
        if name not in self.platforms:
            raise UnsupportedError(
                f"the platform {name[:40]!r} is not supported",
                why=f"known: {', '.join(self.platforms)}",
                remedy=f"--platform {self.default.platform}",
            )
        return self.platforms[name]

    def require_gpu_code(self, name: str, problem: str, remedy: str, cuda: str = "") -> None:
        """Raise UnsupportedError if the published wheels for a platform have no code for a GPU, or for another CUDA."""
        place, built = self.platform(name), self.published_code.cuda
        if place.gpu_code and cuda and numbers.parse(cuda)[0] != numbers.parse(built)[0]:
            raise UnsupportedError(
                f"{problem}: the published wheels load no library of CUDA {cuda}",
                why=f"they were built with CUDA {built}",
                remedy=remedy,
            )
        if not place.gpu_code:
            raise UnsupportedError(
                f"{problem}: the published wheels for {place.shown} have no GPU code",
                why=f"neither machine code nor PTX ({', '.join(place.issues)})",
                remedy=remedy,
            )

    @property
    def default_base(self) -> BaseRow:
        base = self.find_base(self.default.base_image)
        if base is None:
            raise ValueError(f"no distribution of the table is that of {self.default.base_image}")
        return base

    def rows(self) -> tuple[TensorflowRow, ...]:
        return tuple(self.tensorflow_rows[version] for version in reversed(numbers.sort(self.tensorflow_rows)))

    def tensorflow(self, version: str) -> TensorflowRow:
        """Return the row of one version.

        Raises UnsupportedError, with the nearest version, if it is not in the table or not complete there. Raises
        UsageError if it is not written as a version.
        """
        numbers.parse(version, "TensorFlow")
        if version not in self.tensorflow_rows:
            refused = (item for item in self.failures if item.refuse and item.when.keys() == {"tensorflow"})
            reason = next((f": {item.symptom}" for item in refused if item.affects(tensorflow=[version])), "")
            # 2.19 means the 2.19 that a run-time set is locked for.
            locked = (item.tensorflow for item in self.published if item.tensorflow.startswith(f"{version}."))
            nearest = numbers.find_nearest(version, self.tensorflow_rows, prefer=next(locked, ""))
            if version in self.incomplete:
                raise UnsupportedError(
                    f"TensorFlow {version} is not complete in the version table",
                    why=f"it lacks {'; '.join(self.incomplete[version].lacks)}",
                    remedy=f"--tensorflow {nearest}",
                )
            raise UnsupportedError(
                f"TensorFlow {version} is not in the version table{reason}",
                why=f"known: {', '.join(numbers.sort(self.tensorflow_rows))}",
                remedy=f"--tensorflow {nearest}",
            )
        return self.tensorflow_rows[version]


BROKEN = (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError)


def read_yaml(text: str | bytes) -> Any:
    """Return what a file of this project says, as a safe loader does, in half of its time.

    Raises yaml.YAMLError if it is no YAML.
    """
    loader = _Loader(text)
    node = loader.get_single_node()

    def construct(node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            return [construct(each) for each in node.value]
        if isinstance(node, yaml.MappingNode):
            return {construct(key): construct(value) for key, value in node.value}
        return node.value if node.tag == _TEXT else loader.construct_object(node)

    return None if node is None else construct(node)


@functools.cache
def load_table(path: Path = PATH) -> Table:
    """Read the table. Raises ToolkitError if the file is missing or inconsistent, which is a defect of this project."""
    try:
        return build_table(read_yaml(path.read_bytes()))
    except (OSError, *BROKEN) as error:
        raise ToolkitError(
            f"the version table {path.name} is broken",
            why=f"{type(error).__name__}: {error}",
            remedy="restore it from the repository",
        ) from error


def build_table(data: Mapping[str, Any]) -> Table:
    """Return the table of parsed YAML. Raises one of BROKEN: it is no table."""
    versions = {key: TensorflowRow(version=key, **_freeze(row)) for key, row in data["tensorflow"].items()}
    table = Table(
        updated=str(data["updated"]),
        sources={name: Source(what=item["what"], date=str(item["date"])) for name, item in data["sources"].items()},
        default=Default(**_freeze(data["default"])),
        toolchains=tuple(Toolchain(**_list_capabilities(row, data)) for row in data["toolchains"]),
        bases={key: BaseRow(codename=key, **_freeze(row)) for key, row in data["bases"].items()},
        platforms={key: PlatformRow(name=key, **_freeze(row)) for key, row in data["platforms"].items()},
        tensorflow_rows={key: row for key, row in versions.items() if not row.missing},
        incomplete={key: row for key, row in versions.items() if row.missing},
        cuda_rows={key: _build_cuda(key, row, data) for key, row in data["cuda"].items()},
        cudnn_rows={key: CudnnRow(version=key, **_freeze(row)) for key, row in data["cudnn"].items()},
        bazel_rows={key: BazelRow(version=key, **_freeze(row)) for key, row in data["bazel"].items()},
        published=tuple(Locked(**_freeze(item)) for item in data["published"]),
        job_glibc=data["job_glibc"],
        driver_branches=tuple(DriverBranch(**_freeze(item)) for item in data["driver_branches"]),
        jetson={key: JetsonRow(release=key, **row) for key, row in data["jetson"].items()},
        published_code=PublishedCode(**_freeze(data["published_code"])),
        failures=tuple(Failure(**_freeze(item)) for item in data["failures"]),
        advisories={key: Advisory(id=key, **_freeze(item)) for key, item in data["advisories"].items()},
    )
    _check(table)
    return table


def _build_cuda(version: str, row: Mapping[str, Any], data: Mapping[str, Any]) -> CudaRow:
    major, windows = version.partition(".")[0], data["windows_drivers"]
    drivers = {
        "driver_min": data["driver_compatible"].get(major, ""),
        "windows_driver": windows["cuda"].get(version, ""),
        "windows_driver_min": windows["compatible"].get(major, ""),
    }
    return CudaRow(version=version, **{**_list_capabilities(row, data), **drivers})


def _list_capabilities(row: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {**_freeze(row), "capabilities": tuple(data["capabilities"][row["capabilities"]])}


def _freeze(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _check(table: Table) -> None:
    redist = [row for rows in table.libraries.values() for row in rows.values()]
    versions = [*table.rows(), *table.incomplete.values()]
    platforms = table.platforms.values()
    rows = [*versions, *redist, *platforms, *table.bazel_rows.values()]
    advisories = table.advisories.values()
    missing = {
        "sources": {source for row in (*rows, *advisories) for source in row.sources} - table.sources.keys(),
        **{
            name: {key for row in versions for key in row.offers(name)} - known.keys()
            for name, known in table.libraries.items()
        },
        "nvidia.json": {
            f"{name} of CUDA {row.version}"
            for row in table.cuda_rows.values()
            for name in {*row.components, *row.headers} - find_wheels(row.version).keys()
        },
        "bazel": {row.bazel for row in versions if row.bazel} - table.bazel_rows.keys(),
        "platforms": {table.default.platform} - table.platforms.keys(),
        "a Bazel's sha256": {row.bazel for row in platforms}.difference(
            *(row.sha256 for row in table.bazel_rows.values())
        ),
        "tensorflow": {table.default.tensorflow, *(item.tensorflow for item in table.published)}
        - table.tensorflow_rows.keys(),
        "an advisory's tensorflow": {key for item in advisories for key in item.affected}
        - {row.version for row in versions},
        "missing": {row.version for row in table.rows() if row.lacks},
    }
    if any(missing.values()):
        raise ValueError("; ".join(f"{name} lacks {sorted(keys)}" for name, keys in missing.items() if keys))
    if again := [item.id for item in advisories if item.fixed in item.affected]:
        raise ValueError(f"advisories that are fixed in a version that they affect: {again}")
    hashes = [row.redist for row in redist]
    hashes += [value for row in table.bazel_rows.values() for value in row.sha256.values()]
    if wrong := [value for value in hashes if len(value) != 64 or set(value) - set("0123456789abcdef")]:
        raise ValueError(f"not sha256 digests: {wrong}")
    allowed = {"tensorflow", *LIBRARIES, "capability"}
    conditional: list[Failure | Toolchain | PlatformRow] = [*table.failures, *table.toolchains, *platforms]
    spans = [pair for row in conditional for pair in row.when.items()]
    if unknown := [pair for pair in spans if pair[0] not in allowed or not _SPAN.fullmatch(pair[1])]:
        raise ValueError(f"conditions that cannot be evaluated: {unknown}")
