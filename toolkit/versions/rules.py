"""Checks the versions that a command asks for against the version table, before anything starts.

Each rule returns reasons instead of raising. So an error can name them all, and the search for a suggestion uses the
same rules.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.checks.nvidia import WHEELS, find_wheels
from toolkit.versions import numbers
from toolkit.versions.set import FIRST_PLATFORM, LIBRARIES, NONE, OPEN, TITLES, Set
from toolkit.versions.sets import describe_set, find_locked
from toolkit.versions.table import Advisory, Failure, Locked, Table, TensorflowRow, Toolchain, affects


@dataclass(frozen=True, kw_only=True)
class VersionRequest(Set):
    """A requested set of versions. Their form is correct; whether they work together is not checked yet."""

    capabilities: tuple[str, ...]
    base: str  # codename of the base image's distribution
    glibc: str = ""  # the oldest that the wheel runs on; empty for that of the base image

    @property
    def numbers(self) -> tuple[str, ...]:
        """The compute capabilities as plain numbers such as ``7.5``."""
        return numbers.list_plain(self.capabilities)

    def flags(self, *, cards: bool = True) -> tuple[str, ...]:
        none = [] if self.cuda else [f"--cuda {NONE}"]
        glibc = [f"--glibc {self.glibc}"] if self.glibc else []
        return (
            *super().flags(),
            *none,
            *glibc,
            *(f"--compute-capability {item}" for item in self.capabilities if cards),
        )


@dataclass(frozen=True, kw_only=True)
class BuildVersions(VersionRequest):
    """The versions of everything that a build of TensorFlow uses. They work together."""

    bazel: str  # version that this TensorFlow is built with
    clang: str  # major version of the toolchain's compiler
    gcc: str  # major version of the g++ whose C++ library it uses
    requirements: str  # the locked run-time set of this Python, CUDA and cuDNN; empty if none is locked
    # flags that the version of TensorFlow needs, then those that avoid known failures
    bazel_arguments: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # about this set, one line each
    answered: tuple[str, ...] = ()  # known failures of the set that the build avoids, one line each


def choose_versions(
    table: Table,
    wanted: Set = OPEN,
    *,
    capabilities: Sequence[str] = (),
    base: str | None = None,
    glibc: str = "",
    for_processor: bool = False,
) -> BuildVersions:
    """Return the set to build from source. What is left open is that of the table's default.

    ``base``: codename of the base image's distribution. ``glibc``: the oldest version that the wheel is to run on, or
    empty. ``for_processor``: whether the set has no CUDA. Raises UsageError if a value is not a version, or if
    capabilities are given for a processor. Raises UnsupportedError, with every reason and the nearest set that can
    work, if this set cannot.
    """
    asked = read(table, wanted, capabilities)
    asked = replace(asked, base=base or asked.base, glibc=glibc)
    if for_processor:
        asked = _leave_out_cuda(asked, capabilities)
    _require_sysroot(table, asked)
    _require_none(table, asked, find_reasons(table, asked))
    locked = find_locked(table, asked)
    failures = find_failures(table, asked)
    row = table.tensorflow(asked.tensorflow)
    return BuildVersions(
        **vars(asked),
        bazel=row.bazel,
        clang=find_toolchains(table, asked)[0].clang,
        gcc=table.bases[asked.base].gcc,
        requirements=locked.requirements if locked else "",
        bazel_arguments=(*row.flags, *(flag for failure in failures for flag in failure.flags)),
        warnings=tuple(_warn(table, asked, locked)),
        answered=tuple(_describe(failure) for failure in failures),
    )


def _leave_out_cuda(asked: VersionRequest, capabilities: Sequence[str]) -> VersionRequest:
    if capabilities:
        raise UsageError(
            f"--cuda none is for processors, and --compute-capability {capabilities[0]} is given too",
            remedy="leave out one of them",
        )
    return replace(asked.without_libraries(), capabilities=())


def _require_sysroot(table: Table, asked: VersionRequest) -> None:
    """Raise UnsupportedError if no wheel for the glibc that is asked for can be built on the base image."""
    row = table.bases[asked.base]
    offered = row.sysroots if asked.platform == FIRST_PLATFORM else ()
    if asked.glibc and asked.glibc not in offered:
        known = f"only for {', '.join(offered)}" if offered else "for no other than its own"
        instead = f", or --base-image {table.default.base_image} --glibc " + " or ".join(table.default_base.sysroots)
        raise UnsupportedError(
            f"no wheel for glibc {asked.glibc[:20]!r} is built on {row.name} for {asked.platform}",
            why=f"a wheel can be built there for glibc {row.glibc}, and for an older one {known}",
            remedy=f"leave out --glibc{instead if asked.platform == FIRST_PLATFORM else ''}",
        )


def plan_set(table: Table, asked: Set) -> Locked:
    """Return the run-time set, there or not; no ``cuda``: the CPU set. Raises UnsupportedError, with the nearest."""
    locked = describe_set(table, asked)
    if asked.python not in locked.python:
        nearest = Set(tensorflow=asked.tensorflow, python=numbers.find_nearest(asked.python, locked.python))
        raise UnsupportedError(
            f"there is no run-time set of TensorFlow {asked.tensorflow} for Python {asked.python}",
            why=f"its wheels and this project have Python {', '.join(locked.python)} in common",
            remedy=" ".join(nearest.flags()),
        )
    if asked.cuda:
        request = read(table, replace(asked, platform=""))
        if not find_wheels(asked.cuda):
            raise UnsupportedError(
                f"there is no run-time set for CUDA {asked.cuda}",
                why=f"images and smoke checks know the libraries of CUDA {' and '.join(WHEELS)} and their folders",
                remedy="`toolkit build-wheel` makes the wheel; install it beside NVIDIA's own packages",
            )
        _require_none(table, request, find_reasons(table, request), cards=False)
    return locked


def propose(table: Table, asked: Set) -> VersionRequest | None:
    """Return the nearest set that can be built; what is left open is chosen.

    Raises what :func:`choose_versions` raises.
    """
    return suggest(table, read(table, asked))


def find_toolchains(table: Table, asked: VersionRequest) -> list[Toolchain]:
    """Return the compilers that compile a whole set, best first."""
    served = _list_toolchains(table, asked.tensorflow, asked.cuda, asked.base)
    return [item for item in served if not {*asked.numbers} - {*item.capabilities}]


def _list_toolchains(table: Table, tensorflow: str, cuda: str, base: str) -> list[Toolchain]:
    packaged = table.bases[base].clang
    return [item for item in table.toolchains if item.clang in packaged and item.serves(tensorflow, cuda)]


def find_failures(table: Table, asked: VersionRequest) -> list[Failure]:
    values = {
        **{name: [value] if (value := getattr(asked, name)) else [] for name in ("tensorflow", *LIBRARIES)},
        "capability": [numbers.strip_suffix(item) for item in asked.numbers],
    }
    return [failure for failure in table.failures if failure.affects(**values)]


def describe_fix(item: Advisory) -> str:
    return f"fixed in {item.fixed}" if item.fixed else "not fixed"


def warn_of_advisories(table: Table, tensorflow: str) -> str:
    """Return one line about the security advisories of a version; empty: none is published."""
    advisories = table.list_advisories(tensorflow)
    named = [f"{item.id} ({describe_fix(item)})" for item in advisories]
    listed = f"TensorFlow {tensorflow} has published security advisories: {', '.join(named)}; see `toolkit matrix`"
    return listed if advisories else ""


def find_reasons(table: Table, asked: VersionRequest) -> list[str]:
    """Return all reasons why a set cannot be built. Raises UnsupportedError if its TensorFlow is not in the table."""
    row = table.tensorflow(asked.tensorflow)
    reasons = []
    if asked.python not in row.python:
        reasons.append(f"TensorFlow {row.version} has no Python {asked.python}, only {', '.join(row.python)}")
    place = table.platform(asked.platform)
    if not affects(place.when, {"tensorflow": [row.version]}):
        reasons.append(f"TensorFlow {row.version} is not built for {place.shown}: {place.why}")
    reasons += _find_unknown_keys(row, asked)
    reasons += _find_unknown_capabilities(table, asked)
    reasons += find_refused(table, asked)
    reasons += _find_missing_parts(table, asked)
    return reasons


def suggest(table: Table, asked: VersionRequest) -> VersionRequest | None:
    """Return the nearest set that can be built and whose machine code runs on the cards asked for.

    First by TensorFlow, then by CUDA, then by cuDNN. None: no set of the table runs on all of these cards.
    """
    versions = numbers.sort_by_nearness(asked.tensorflow, table.tensorflow_rows, prefer=table.default.tensorflow)
    return next((suggestion for version in versions if (suggestion := _search(table, asked, version))), None)


def _search(table: Table, asked: VersionRequest, tensorflow: str) -> VersionRequest | None:
    row, default = table.tensorflow_rows[tensorflow], table.default
    python = numbers.find_nearest(asked.python, row.python, prefer=default.python)
    if not asked.cuda:
        suggestion = replace(asked, tensorflow=tensorflow, python=python)
        return None if find_reasons(table, suggestion) else suggestion
    published = {item.cuda: item.cudnn for item in table.published if item.tensorflow == tensorflow}
    near = numbers.sort_by_nearness(asked.cuda, row.cuda, prefer=default.cuda)
    minors = [version.rpartition(".")[0] for version in near]
    places = {
        version: (minors.index(minor), version != asked.cuda, version not in published)
        for version, minor in zip(near, minors, strict=True)
    }
    # Of the releases of one minor version, one with a run-time set here comes first.
    for cuda in sorted(near, key=places.__getitem__):
        fitted = _fit(asked.capabilities, _compilable(table, tensorflow, cuda, asked.base))
        nearest = numbers.sort_by_nearness(asked.cudnn, row.cudnn, prefer=default.cudnn) if fitted else []
        for cudnn in sorted(nearest, key=lambda version: (version != asked.cudnn, version != published.get(cuda, ""))):
            suggestion = replace(
                asked, tensorflow=tensorflow, python=python, cuda=cuda, cudnn=cudnn, capabilities=fitted
            )
            if not find_reasons(table, suggestion):
                return suggestion
    return None


_NO_SET = "no set of the table runs on this card; without --cuda, TensorFlow runs on the processor"


def _find_first_tensorflow(table: Table, asked: VersionRequest) -> list[str]:
    first = next(version for version in numbers.sort(table.tensorflow_rows) if _search(table, asked, version))
    if numbers.parse(asked.tensorflow) >= numbers.parse(first):
        return []
    cards = ", ".join(asked.numbers)
    return [f"TensorFlow {first} is the first that can be built here for compute capability {cards}"]


def _require_none(table: Table, asked: VersionRequest, reasons: list[str], *, cards: bool = True) -> None:
    if not reasons:
        return
    nearest = suggest(table, asked)
    reasons = [*reasons, *(_find_first_tensorflow(table, asked) if nearest else [])]
    raise UnsupportedError(
        reasons[0],
        why="; ".join(f"also, {reason}" for reason in reasons[1:]),
        remedy=f"nearest that works: {' '.join(nearest.flags(cards=cards))}"
        if nearest
        else _suggest_base(table, asked),
    )


def _suggest_base(table: Table, asked: VersionRequest) -> str:
    usual = replace(asked, base=table.default_base.codename)
    return f"--base-image {table.default.base_image}" if usual != asked and suggest(table, usual) else _NO_SET


def _find_unknown_keys(row: TensorflowRow, asked: VersionRequest) -> list[str]:
    reasons = []
    for name, value in asked.libraries.named().items():
        label, known = TITLES[name], row.offers(name)
        if value in known:
            continue
        release = next((item for item in known if value.startswith(f"{item}.")), "")
        note = f" ({label} {release} is the release; {value} is the number of a wheel)" if release else ""
        note = " (the full x.y.z is needed)" if value.count(".") < 2 else note
        reasons.append(f"TensorFlow {row.version} has no {label} {value} in its tables{note}: {', '.join(known)}")
    return reasons


def _find_unknown_capabilities(table: Table, asked: VersionRequest) -> list[str]:
    cuda = table.cuda_rows.get(asked.cuda)
    unknown = [item for item in asked.numbers if cuda and item not in cuda.capabilities]
    reasons = [
        f"CUDA {asked.cuda} does not know compute capability {item}, {_find_knowing(table, asked.cuda, item)}"
        for item in unknown
    ]
    if reasons or find_toolchains(table, asked):
        return reasons
    elsewhere = find_toolchains(table, replace(asked, base=table.default_base.codename))
    if elsewhere:
        row, needed = table.bases[asked.base], ", ".join(item.clang for item in elsewhere)
        compiler = f"clang {' and '.join(row.clang)}" if row.clang else "none that can"
        return [f"{row.name} packages {compiler}, and this set is compiled by clang {needed}"]
    served = [item for item in table.toolchains if item.serves(asked.tensorflow, asked.cuda)]
    if not served:
        compiled = {number for item in table.toolchains for number in item.capabilities}
        return [
            f"no clang of the toolchain compiles TensorFlow {asked.tensorflow} with CUDA {asked.cuda}",
            *(f"no clang of it knows compute capability {item}" for item in asked.numbers if item not in compiled),
        ]
    # The last of them compiles the most.
    missing = [item for item in asked.numbers if item not in served[-1].capabilities] or [", ".join(asked.numbers)]
    return [
        f"clang {served[-1].clang} of the toolchain does not know compute capability {item}"
        + "".join(
            f", and clang {other.clang} is for TensorFlow {other.when['tensorflow']}"
            for other in table.toolchains
            if other not in served and item in other.capabilities and "tensorflow" in other.when
        )
        for item in missing
    ]


def _find_knowing(table: Table, cuda: str, capability: str) -> str:
    knowing = numbers.sort(row.version for row in table.cuda_rows.values() if capability in row.capabilities)
    newer = [version for version in knowing if numbers.parse(version) > numbers.parse(cuda)]
    if newer:
        return f"which begins with CUDA {newer[0]}"
    return f"which ended with CUDA {knowing[-1]}" if knowing else "and no CUDA of the table does"


def find_refused(table: Table, asked: VersionRequest) -> list[str]:
    return [
        f"{failure.symptom} ({', '.join(failure.issues)})" for failure in find_failures(table, asked) if failure.refuse
    ]


def _find_missing_parts(table: Table, asked: VersionRequest) -> list[str]:
    cuda = table.cuda_rows.get(asked.cuda)
    if cuda is None or cuda.parts:
        return []
    return [
        f"the toolchain's parts of CUDA {asked.cuda} are not locked here, so that it could not be proven to compile"
    ]


def _compilable(table: Table, tensorflow: str, cuda: str, base: str) -> list[str]:
    served = {number for item in _list_toolchains(table, tensorflow, cuda, base) for number in item.capabilities}
    return [item for item in table.cuda_rows[cuda].capabilities if item in served]


def _fit(names: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the capabilities to build for the cards asked for; empty if one of them can be served by none."""
    runnable = {name: numbers.find_runnable(numbers.to_plain(name), known) for name in names}
    if not all(runnable.values()):
        return ()
    return numbers.normalize_capabilities(
        f"{name.partition('_')[0]}_{number.replace('.', '')}" for name, number in runnable.items() if number
    )


def read(table: Table, wanted: Set, capabilities: Sequence[str] = ()) -> VersionRequest:
    """Return what is asked for, completed by the table's default. Raises UsageError if a value is no version."""
    default = table.default
    usual = default.merge(_find_usual(table, wanted.tensorflow or default.tensorflow)).merge(wanted)
    asked = VersionRequest(
        **usual.named(),
        capabilities=numbers.normalize_capabilities(capabilities or default.capabilities),
        base=table.default_base.codename,
        platform=table.platform(usual.platform).name,
    )
    for name, value in asked.named().items():
        numbers.parse(value, TITLES[name])
    _refuse_swapped(table, asked)
    return asked


def _refuse_swapped(table: Table, asked: VersionRequest) -> None:
    """Raise UsageError if each of CUDA and cuDNN has a version that only the other has, by its first number."""
    rows = table.tensorflow_rows.values()
    cuda = {item.partition(".")[0] for row in rows for item in row.cuda}
    cudnn = {item.partition(".")[0] for row in rows for item in row.cudnn}
    majors = asked.cuda.partition(".")[0], asked.cudnn.partition(".")[0]
    if majors[0] in cudnn - cuda and majors[1] in cuda - cudnn:
        raise UsageError(
            "the versions of CUDA and cuDNN are swapped",
            why=f"there is no CUDA {asked.cuda} and no cuDNN {asked.cudnn}",
            remedy=f"--cuda {asked.cudnn} --cudnn {asked.cuda}",
        )


def _find_usual(table: Table, tensorflow: str) -> Set:
    default, row = table.default, table.tensorflow_rows.get(tensorflow)
    items = [item for item in table.published if item.cuda and item.tensorflow == tensorflow]
    if row is None or any(item.libraries == default.libraries for item in items):
        return OPEN
    if items:
        return items[0].choose("")
    usual = default.libraries.named().items()
    return Set.of({name: numbers.find_nearest(value, row.offers(name)) for name, value in usual})


def _warn(table: Table, asked: VersionRequest, locked: Locked | None) -> Iterable[str]:
    row = table.tensorflow(asked.tensorflow)
    if advisories := warn_of_advisories(table, row.version):
        yield advisories
    if untried := table.platform(asked.platform).untried:
        yield untried
    if not row.tested:
        yield f"TensorFlow {row.version} has not been run by this project: its row comes from {', '.join(row.sources)}"
    documented, clang = row.clang.partition(".")[0], find_toolchains(table, asked)[0].clang
    if documented != clang:
        yield f"upstream documents clang {documented} for {row.version}; this set is compiled by clang {clang}"
    wanted = describe_set(table, asked)
    if asked.cuda and not find_wheels(asked.cuda):
        yield f"there is no run-time set for CUDA {asked.cuda}: build-image will refuse the wheel"
    elif locked is None and asked.python in wanted.python:
        yield f"build-image needs a run-time set: `toolkit lock {' '.join(asked.flags(cards=False))}` makes it"
    elif locked is None:
        yield f"there is no run-time set for Python {asked.python}: build-image will refuse the wheel"


def _describe(failure: Failure) -> str:
    return f"{failure.id}: {failure.symptom} ({', '.join(failure.issues)}); answer: {failure.ours}"
