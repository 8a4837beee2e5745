"""Says which versions of NVIDIA's packages a wheel may be installed with, by its cards and by the version table.

The extra ``and-cuda`` of published wheels is either pinned to the CUDA of the build, which does not know later cards,
or open upwards, so that it brings a cuDNN without code for earlier ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from toolkit.base.errors import UnsupportedError
from toolkit.checks.nvidia import find_wheels
from toolkit.versions import numbers
from toolkit.versions.set import Set
from toolkit.versions.sets import name_components
from toolkit.versions.table import CudaRow, Table, affects, split_span


def list_bounds(table: Table, built: Set, served: Iterable[str]) -> dict[str, str]:
    """Return the specifier of each package of NVIDIA by its name, such as ``>=12.8.4.1,<13``.

    ``built``: what the wheel was built with; the result is empty if the table has no CUDA as new. Its cuDNN is left
    open if it is that of the published wheel; TensorFlow refuses an older minor version. ``served``: compute
    capabilities that the wheel has machine code for.
    """
    cards = numbers.sort({numbers.strip_suffix(item) for item in served})
    row = _find_first(table, built.cuda, cards)
    if row is None:
        return {}
    components = name_components(table, replace(built, cuda=row.version))
    bounds = {name: _reach(version) for name, version in components.items()}
    return {**bounds, find_wheels(row.version)["cudnn"].package: _bound_cudnn(table, built, row.version, cards)}


def list_exact(table: Table, chosen: Set) -> dict[str, str]:
    """Return the specifiers of one run-time set, such as ``==12.8.4.1``.

    Raises UnsupportedError if the table does not name NVIDIA's packages of this CUDA or cuDNN.
    """
    row, library = table.cuda_rows.get(chosen.cuda), table.cudnn_rows.get(chosen.cudnn)
    if row is None or not row.components or library is None or not library.wheel:
        raise UnsupportedError(
            f"the packages of {chosen.describe_libraries()} are not known here, so none can be required exactly",
            why="the version table does not name them",
            remedy="leave out --exact",
        )
    return {name: f"=={version}" for name, version in name_components(table, chosen).items()}


def find_first_cuda(table: Table, built: str, cards: Iterable[str]) -> str:
    """Return the first CUDA from that of a build on that knows some cards; empty if the table has none."""
    row = _find_first(table, built, numbers.sort({numbers.strip_suffix(item) for item in cards}))
    return row.version if row else ""


def _find_first(table: Table, built: str, cards: Sequence[str]) -> CudaRow | None:
    """Return the first CUDA that knows the cards, from that of the build on: the last release of its minor version.

    It is of the same major version, as NVIDIA's libraries of another one have other names. A card that no CUDA of the
    table knows does not count. None: the table has no such CUDA.
    """
    first = numbers.parse(built)
    rows = [
        row
        for version, row in sorted(table.cuda_rows.items(), key=lambda item: numbers.parse(item[0]))
        if row.components and numbers.parse(version)[0] == first[0] and numbers.parse(version) >= first
    ]
    wanted = {card for card in cards if any(card in row.capabilities for row in rows)}
    knowing = [row for row in rows if wanted <= set(row.capabilities)]
    if not knowing or knowing[0].version == built:
        return knowing[0] if knowing else None
    minor = numbers.parse(knowing[0].version)[:2]
    return [row for row in knowing if numbers.parse(row.version)[:2] == minor][-1]


def _bound_cudnn(table: Table, built: Set, cuda: str, cards: Sequence[str]) -> str:
    """Return the specifier of cuDNN: without the versions that a known failure of this TensorFlow or a card refuses."""
    known = table.tensorflow_rows.get(built.tensorflow)
    oldest = numbers.parse(built.cudnn or (known.and_cuda if known else {}).get("cudnn", "9"))[:2]
    above: tuple[int, ...] = oldest
    below: tuple[int, ...] = (oldest[0] + 1,)
    for failure in table.failures:
        span = split_span(failure.when.get("cudnn", ""))
        others = {name: value for name, value in failure.when.items() if name != "cudnn"}
        if not failure.refuse or not any(span.values()) or not others.keys() & {"capability", "tensorflow"}:
            continue
        values = {"tensorflow": [built.tensorflow], "cuda": [cuda], "capability": cards}
        if not affects(others, values):
            continue
        if span["since"]:
            below = min(below, numbers.parse(span["since"]))
        else:
            above = max(above, numbers.parse(span["before"]))
    return f">={_write(above)},<{_write(below)}"


def _reach(version: str) -> str:
    return f">={version},<{numbers.parse(version)[0] + 1}"


def _write(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
