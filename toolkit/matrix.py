"""The version table: what TensorFlow, CUDA, cuDNN, Python and Bazel work together, and who says so.

The data is matrix.yaml; this module reads it once and checks that it holds together.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from toolkit import versions
from toolkit.errors import ToolkitError, UnsupportedError

# libyaml is 20 times faster than the Python loader; wheels of PyYAML have it, some distributions' packages do not.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
PATH = Path(__file__).with_name("matrix.yaml")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a fact comes from, and of which day it is."""

    what: str
    date: str


@dataclass(frozen=True, kw_only=True)
class Default:
    """The set that is meant when nothing is said."""

    tensorflow: str
    python: str
    cuda: str
    cudnn: str
    capabilities: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compiler of our build stage.

    Attributes:
        clang: major version.
        capabilities_max: newest compute capability that it compiles for.
        source: why.
    """

    clang: str
    capabilities_max: str
    source: str


@dataclass(frozen=True, kw_only=True)
class TensorflowRow:
    """One version of TensorFlow.

    Attributes:
        tested: this project has run it.
        hermetic: Bazel fetches CUDA itself, from the version's own tables.
        python, cuda, cudnn: exact strings that the build accepts.
        clang: the compiler that upstream documents, not ours.
        target: Bazel target of the wheel, below //tensorflow/tools/pip_package.
        nccl: version in the table, where known.
        and_cuda: CUDA and cuDNN that the wheel's own extra would install, where known.
        commit: of the version's tag, where known.
        tarball_sha256: of the tag's source archive, where known.
        flags: what Bazel gets for this version.
    """

    version: str
    tested: bool
    hermetic: bool
    python: tuple[str, ...]
    bazel: str
    clang: str
    target: str
    cuda: tuple[str, ...]
    cudnn: tuple[str, ...]
    sources: tuple[str, ...]
    nccl: str = ""
    and_cuda: Mapping[str, str] = field(default_factory=dict)
    commit: str = ""
    tarball_sha256: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CudaRow:
    """One CUDA release.

    Attributes:
        redist: sha256 of NVIDIA's redistrib JSON.
        driver: Linux driver shipped with it; empty where unknown.
        driver_min: oldest driver that runs it by minor-version compatibility; empty where unknown.
        capabilities: compute capabilities that its ptxas assembles.
        components: versions of its run-time wheels; empty where not looked up.
        parts: locked set of the toolchain's proof, a file of docker/requirements; empty where none is locked.
    """

    version: str
    redist: str
    capabilities: tuple[str, ...]
    sources: tuple[str, ...]
    driver: str = ""
    driver_min: str = ""
    components: Mapping[str, str] = field(default_factory=dict)
    parts: str = ""


@dataclass(frozen=True, kw_only=True)
class CudnnRow:
    """One cuDNN release: sha256 of its redistrib JSON and, where looked up, the version of its wheel."""

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
class Published:
    """A locked requirement set, docker/requirements/NAME.txt, that installs a published wheel."""

    tensorflow: str
    python: tuple[str, ...]
    requirements: str
    cuda: str = ""
    cudnn: str = ""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A known upstream failure.

    Attributes:
        when: for ``tensorflow``, ``cuda``, ``cudnn`` and ``capability``, the range of versions touched.
        ours: what this project does about it.
        flags: what Bazel gets for it.
        refuse: nothing can be done: do not start.
    """

    id: str
    issues: tuple[str, ...]
    symptom: str
    ours: str
    flags: tuple[str, ...] = ()
    when: Mapping[str, versions.Range] = field(default_factory=dict)
    refuse: bool = False

    def touches(self, **values: Sequence[str]) -> bool:
        """Whether a set is touched: each range of ``when`` holds one of the values of that name."""
        return all(any(value in span for value in values[name]) for name, span in self.when.items())


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """The whole table."""

    updated: str
    sources: Mapping[str, Source]
    default: Default
    toolchain: Toolchain
    tensorflow_rows: Mapping[str, TensorflowRow]
    cuda_rows: Mapping[str, CudaRow]
    cudnn_rows: Mapping[str, CudnnRow]
    bazel_rows: Mapping[str, BazelRow]
    published: tuple[Published, ...]
    failures: tuple[Failure, ...]

    def rows(self) -> tuple[TensorflowRow, ...]:
        """The versions of TensorFlow, newest first."""
        return tuple(self.tensorflow_rows[version] for version in reversed(versions.sort(self.tensorflow_rows)))

    def tensorflow(self, version: str) -> TensorflowRow:
        """The row of one version.

        Raises:
            UnsupportedError: it is not in the table; the nearest one is named.
            UsageError: it is no version at all.
        """
        versions.parse(version, "TensorFlow")
        if version not in self.tensorflow_rows:
            nearest = versions.find_nearest(version, self.tensorflow_rows)
            raise UnsupportedError(
                f"TensorFlow {version} is not in the version table",
                why=f"known: {', '.join(versions.sort(self.tensorflow_rows))}",
                remedy=f"--tensorflow {nearest}",
            )
        return self.tensorflow_rows[version]


@functools.cache
def load(path: Path = PATH) -> Matrix:
    """Read the table.

    Raises:
        ToolkitError: the file is missing, or does not hold together; that is a defect of this project.
    """
    try:
        return _build(yaml.load(path.read_bytes(), _Loader))  # noqa: S506 (both loaders are the safe ones)
    except (OSError, yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise ToolkitError(
            f"the version table {path.name} is broken",
            why=f"{type(error).__name__}: {error}",
            remedy="restore it from the repository",
        ) from error


def _build(data: Mapping[str, Any]) -> Matrix:
    matrix = Matrix(
        updated=str(data["updated"]),
        sources={name: Source(what=item["what"], date=str(item["date"])) for name, item in data["sources"].items()},
        default=Default(**_freeze(data["default"])),
        toolchain=Toolchain(**data["toolchain"]),
        tensorflow_rows={key: TensorflowRow(version=key, **_freeze(row)) for key, row in data["tensorflow"].items()},
        cuda_rows={key: _build_cuda(key, row, data) for key, row in data["cuda"].items()},
        cudnn_rows={key: CudnnRow(version=key, **_freeze(row)) for key, row in data["cudnn"].items()},
        bazel_rows={key: BazelRow(version=key, **_freeze(row)) for key, row in data["bazel"].items()},
        published=tuple(Published(**_freeze(item)) for item in data["published"]),
        failures=tuple(_build_failure(item) for item in data["failures"]),
    )
    _check(matrix)
    return matrix


def _build_cuda(version: str, row: Mapping[str, Any], data: Mapping[str, Any]) -> CudaRow:
    known = tuple(data["capabilities"][row["capabilities"]])
    driver_min = data["driver_compatible"].get(version.partition(".")[0], "")
    return CudaRow(version=version, **{**_freeze(row), "capabilities": known, "driver_min": driver_min})


def _build_failure(item: Mapping[str, Any]) -> Failure:
    when = {name: versions.Range(**span) for name, span in item.get("when", {}).items()}
    return Failure(**{**_freeze(item), "when": when})


def _freeze(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _check(matrix: Matrix) -> None:
    redist: list[CudaRow | CudnnRow] = [*matrix.cuda_rows.values(), *matrix.cudnn_rows.values()]
    rows: list[TensorflowRow | CudaRow | CudnnRow | BazelRow] = [*matrix.rows(), *redist, *matrix.bazel_rows.values()]
    cited = {source for row in rows for source in row.sources}
    missing = {
        "sources": cited - matrix.sources.keys(),
        "cuda": {key for row in matrix.rows() for key in row.cuda} - matrix.cuda_rows.keys(),
        "cudnn": {key for row in matrix.rows() for key in row.cudnn} - matrix.cudnn_rows.keys(),
        "bazel": {row.bazel for row in matrix.rows()} - matrix.bazel_rows.keys(),
        "tensorflow": {matrix.default.tensorflow, *(item.tensorflow for item in matrix.published)}
        - matrix.tensorflow_rows.keys(),
    }
    if any(missing.values()):
        raise ValueError("; ".join(f"{name} lacks {sorted(keys)}" for name, keys in missing.items() if keys))
    hashes = [row.redist for row in redist]
    hashes += [value for row in matrix.bazel_rows.values() for value in row.sha256.values()]
    wrong = [value for value in hashes if len(value) != 64 or set(value) - set("0123456789abcdef")]
    if wrong:
        raise ValueError(f"not sha256 digests: {wrong}")
    allowed = {"tensorflow", "cuda", "cudnn", "capability"}
    unknown = {name for failure in matrix.failures for name in failure.when} - allowed
    if unknown:
        raise ValueError(f"failures look at unknown values: {sorted(unknown)}")
