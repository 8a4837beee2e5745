"""Shows the version table, and each set of TensorFlow, CUDA, capability and Python: proven, refused or untried."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NotRequired, TypedDict

from toolkit.base.errors import UnsupportedError
from toolkit.versions import numbers, proofs
from toolkit.versions.rules import VersionRequest, describe_fix, find_reasons, find_toolchains
from toolkit.versions.set import LIBRARIES
from toolkit.versions.table import Advisory, Failure, PlatformRow, Table, TensorflowRow, split_span

State = Literal["proven", "proven (cross)", "failed", "refused", "untried"]
"""``proven (cross)``: by a cross compiler, on a machine of another platform."""

_MARKS: Mapping[State, str] = {"proven": "+", "proven (cross)": "c", "failed": "x", "refused": "-", "untried": "?"}
_TENSORFLOW = ("TensorFlow", "Python", "Bazel", "CUDA", "cuDNN", "tested", "sources")
_CUDA = ("CUDA", "driver", "oldest driver", "capabilities", "built here", "sources")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A set, for every Python that its TensorFlow has. ``why``: the reason of a refusal or failure."""

    platform: str
    tensorflow: str
    cuda: str
    capability: str
    pythons: tuple[str, ...]
    state: State
    clang: str = ""  # major version of its compiler; empty if it is refused
    why: str = ""
    date: str = ""  # of the proof


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    cuda: str
    capability: str
    platform: str


class Evidence(TypedDict):
    state: State
    why: NotRequired[str]
    date: NotRequired[str]


def list_cells(table: Table, platform: str = "") -> Iterator[Cell]:
    """Yield the cells, newest TensorFlow and CUDA first. Whether a toolchain works does not depend on Python."""
    platform = platform or table.default.platform
    known = proofs.read()
    for row in table.rows():
        for cuda in reversed(row.cuda):
            # One capability that every compiler knows tells whether the release is refused as a whole.
            whole = _find_reason(table, row, _Wanted(cuda=cuda, capability="9.0", platform=platform))
            for capability in table.cuda_rows[cuda].capabilities:
                name = {"platform": platform, "tensorflow": row.version, "cuda": cuda, "capability": capability}
                wanted = _Wanted(cuda=cuda, capability=capability, platform=platform)
                why = whole or _find_reason(table, row, wanted)
                if why:
                    yield Cell(**name, pythons=row.python, state="refused", why=why)
                    continue
                clang = find_toolchains(table, _ask(table, row, row.cudnn[-1], wanted))[0].clang
                proof = known.get((platform, row.version, cuda, clang))
                yield Cell(**name, pythons=row.python, clang=clang, **_look_up(proof, capability))


def narrow(table: Table, tensorflow: str = "", cuda: str = "") -> Table:
    """Return the part of the table that concerns one version of TensorFlow, one release of CUDA, or both.

    Raises UnsupportedError, with the nearest version, if the table does not have them, or not together.
    """
    rows = [table.tensorflow(tensorflow)] if tensorflow else list(table.rows())
    if cuda:
        takers = [row for row in rows if cuda in row.cuda]
        if not takers:
            offered = {release for row in rows for release in row.cuda}
            raise UnsupportedError(
                f"{f'TensorFlow {tensorflow}' if tensorflow else 'no TensorFlow of the table'} "
                f"{'has no' if tensorflow else 'has'} CUDA {cuda}",
                why=f"there is {', '.join(numbers.sort(offered))}",
                remedy=f"--cuda {numbers.find_nearest(cuda, offered)}",
            )
        rows = [replace(row, cuda=(cuda,)) for row in takers]
    releases = {release for row in rows for release in row.cuda}
    versions = [row.version for row in rows]
    values = {
        "tensorflow": versions,
        **{name: [release for row in rows for release in row.offers(name)] for name in LIBRARIES},
        "capability": [
            capability
            for release in releases
            for capability in table.cuda_rows[release].capabilities
            if not capability[-1].isalpha()
        ],
    }
    return replace(
        table,
        tensorflow_rows={row.version: row for row in rows},
        incomplete={},
        cuda_rows={release: row for release, row in table.cuda_rows.items() if release in releases},
        failures=tuple(failure for failure in table.failures if failure.affects(**values)),
        advisories={
            name: advisory
            for name, advisory in table.advisories.items()
            if any(version in advisory.affected for version in versions)
        },
    )


def _look_up(proof: proofs.Proof | None, capability: str) -> Evidence:
    if proof is None:
        return {"state": "untried"}
    evidence: Evidence = {"state": "proven (cross)" if proof.host else "proven", "date": proof.date}
    if capability in proof.failed:
        return {**evidence, "state": "failed", "why": proof.failed[capability]}
    return evidence if capability in proof.proven else {"state": "untried"}


def find_evidence(table: Table, asked: VersionRequest) -> Evidence:
    """Return what the proofs say of a set that can be built, for the first of its capabilities."""
    clang = find_toolchains(table, asked)[0].clang
    proof = proofs.read().get((asked.platform, asked.tensorflow, asked.cuda, clang))
    return _look_up(proof, asked.numbers[0])


def _find_reason(table: Table, row: TensorflowRow, wanted: _Wanted) -> str:
    first = ""
    for cudnn in reversed(row.cudnn):
        reasons = find_reasons(table, _ask(table, row, cudnn, wanted))
        if not reasons:
            return ""
        first = first or reasons[0]
    return first


def _ask(table: Table, row: TensorflowRow, cudnn: str, wanted: _Wanted) -> VersionRequest:
    return VersionRequest(
        tensorflow=row.version,
        python=row.python[-1],
        cuda=wanted.cuda,
        cudnn=cudnn,
        capabilities=numbers.normalize_capabilities([wanted.capability]),
        base=table.default_base.codename,
        platform=wanted.platform,
    )


def render_grid(cells: Sequence[Cell]) -> str:
    """Return a table for each TensorFlow: a row for each CUDA, a column for each capability; then what is refused."""
    lines: list[str] = []
    for tensorflow in dict.fromkeys(cell.tensorflow for cell in cells):
        mine = [cell for cell in cells if cell.tensorflow == tensorflow]
        offered = [cell for cell in mine if cell.clang]
        lines.append(f"TensorFlow {tensorflow} for {mine[0].platform}, Python {', '.join(mine[0].pythons)}")
        lines += [f"  {line}" for line in (_align(list(_list_grid(offered))) if offered else [])]
        lines += [f"  {line}" for line in _list_refusals(mine)]
    count = {state: sum(cell.state == state for cell in cells) for state in _MARKS}
    legend = ", ".join(f"{mark} {state} ({count[state]})" for state, mark in _MARKS.items())
    return "\n".join([*lines, f"{legend}; each for every Python of its TensorFlow"])


def _list_grid(cells: Sequence[Cell]) -> Iterable[Sequence[str]]:
    columns = sorted({cell.capability for cell in cells}, key=numbers.order)
    yield "CUDA", *columns, "clang", "proven on"
    for cuda in dict.fromkeys(cell.cuda for cell in cells):
        row = {cell.capability: cell for cell in cells if cell.cuda == cuda}
        marks = [_MARKS[row[column].state] if column in row else "" for column in columns]
        dates = ", ".join(sorted({cell.date for cell in row.values() if cell.date}))
        yield cuda, *marks, ", ".join(dict.fromkeys(cell.clang for cell in row.values())), dates or "-"


def _list_refusals(cells: Sequence[Cell]) -> Iterable[str]:
    open_to_some = {cell.cuda for cell in cells if not cell.why}
    places: dict[str, list[str]] = {}
    for cell in cells:
        if cell.why:
            why = cell.why.replace(f"CUDA {cell.cuda}", "CUDA").replace(f"capability {cell.capability}", "capability")
            place = f"{cell.cuda} for {cell.capability}" if cell.cuda in open_to_some else cell.cuda
            places.setdefault(why, []).append(place)
    for why, combinations in places.items():
        yield f"{', '.join(dict.fromkeys(combinations))}: {why}"


def render(table: Table, explained: Mapping[str, str] | None = None) -> str:
    """Return the table for people. ``explained``: where a known failure is explained, by its id."""
    notes = [f"  {name}: {source.what}, {source.date}" for name, source in sorted(table.sources.items())]
    parts = [
        [*_align([_TENSORFLOW, *_list_tensorflow(table)]), *_list_incomplete(table)],
        _align([_CUDA, *_list_cuda(table)]),
        ["platforms", *(line for row in table.platforms.values() for line in _describe_platform(row))],
        ["security advisories", *(line for item in table.advisories.values() for line in _describe_advisory(item))],
        ["known failures", *(line for failure in table.failures for line in _describe(failure, explained or {}))],
        [f"updated {table.updated}; sources:", *notes],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _list_tensorflow(table: Table) -> Iterable[Sequence[str]]:
    for row in table.rows():
        tested, sources = "yes" if row.tested else "no", ", ".join(row.sources)
        yield row.version, _span(row.python), row.bazel, _span(row.cuda), _span(row.cudnn), tested, sources


def _list_incomplete(table: Table) -> Iterable[str]:
    for row in table.incomplete.values():
        yield f"{row.version} is refused; it lacks"
        yield from (f"  {reason}" for reason in row.lacks)


def _list_cuda(table: Table) -> Iterable[Sequence[str]]:
    for row in table.cuda_rows.values():
        # Without locked parts the toolchain cannot be tested, so that no wheel is built.
        built, sources = "yes" if row.parts else "no", ", ".join(row.sources)
        yield row.version, row.driver or "-", row.driver_min or "-", _span(row.capabilities), built, sources


def _describe_platform(row: PlatformRow) -> Iterable[str]:
    span = "".join(f", TensorFlow {_bound(split_span(span))}" for span in row.when.values())
    code = "published wheels have GPU code" if row.gpu_code else "published wheels have no GPU code"
    yield f"  {row.shown}: {code} ({', '.join((*row.issues, *row.sources))}); built from source{span or ', all'}"
    if row.untried:
        yield f"    {row.untried}"


def _describe(failure: Failure, explained: Mapping[str, str]) -> Iterable[str]:
    span = " and ".join(f"{name} {_bound(split_span(span))}" for name, span in failure.when.items())
    yield f"  {failure.id}{f', {span}' if span else ''}: {failure.symptom} ({', '.join(failure.issues)})"
    yield f"    answer: {failure.ours}"
    if failure.id in explained:
        yield f"    explained by: {explained[failure.id]}"


def _describe_advisory(item: Advisory) -> Iterable[str]:
    sentence = f"{describe_fix(item)}, severity {item.severity or 'not known'}"
    yield f"  {item.id}, TensorFlow {', '.join(item.affected)}, {sentence}: {item.what} ({', '.join(item.sources)})"
    if item.ours:
        yield f"    answer: {item.ours}"


def _bound(span: Mapping[str, str]) -> str:
    bounds = (("from", span["since"]), ("before", span["before"]))
    return " ".join(f"{word} {version}" for word, version in bounds if version)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _span(versions: Sequence[str]) -> str:
    return f"{versions[0]} … {versions[-1]}" if len(versions) > 1 else "".join(versions) or "-"
