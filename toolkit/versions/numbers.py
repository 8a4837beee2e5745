"""Parses and compares versions and compute capabilities.

A capability may have a prefix. ``sm_75`` stands for machine code of one architecture; ``compute_75`` adds PTX for newer
ones. In a list of plain numbers, the highest becomes ``compute_`` and the others ``sm_``, as in TensorFlow's
cuda_configure.bzl.
"""

import functools
import re
from collections.abc import Iterable

from toolkit.base.errors import UsageError
from toolkit.checks.gpu_rules import find_coverage, parse_capability

# The length is limited, because a very long number takes long to convert.
_VERSION = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){0,3}")
_STEP = 10**6
_EXAMPLES = {"TensorFlow": "2.19.0", "Python": "3.11", "cuDNN": "9.5.0", "the driver": "550.54"}


def parse(text: str, name: str = "version") -> tuple[int, ...]:
    """Return the numbers of a version such as ``12.6.1`` of the product ``name``. Raises UsageError if it has none."""
    if not _VERSION.fullmatch(text):
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise UsageError(
            f"not a version of {name}: {shown!r}",
            remedy=f"write numbers between dots, such as {_EXAMPLES.get(name, '12.6.1')}",
        )
    return tuple(int(part) for part in text.split("."))


def sort(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=parse)


def find_pythons(tags: str) -> list[str]:
    """Return the Pythons ``3.11`` that a text names by interpreter tags such as ``cp311``, in its order."""
    return [f"{major}.{minor}" for major, minor in re.findall(r"\bcp(\d)(\d+)", tags)]


def find_nearest(text: str, known: Iterable[str], *, prefer: str = "") -> str:
    return sort_by_nearness(text, known, prefer=prefer)[0]


def sort_by_nearness(text: str, known: Iterable[str], *, prefer: str = "") -> list[str]:
    """Return the known versions, nearest first by their first two numbers.

    Ties go to ``prefer``, then to the nearest by all given numbers, then to the newest.
    """
    asked, partial = to_number(text), text.count(".") < 2

    def distance(candidate: str) -> tuple[int, bool, int, int]:
        number = to_number(candidate)
        far = abs(number // _STEP**2 - asked // _STEP**2)
        return far, candidate != prefer, 0 if partial else abs(number - asked), -number

    return sorted(known, key=distance)


@functools.cache
def to_number(text: str) -> int:
    """Return a version as one number, so that 13.0 is nearer to 12.8 than to 12.1."""
    return sum(number * _STEP ** (3 - index) for index, number in enumerate(parse(text)))


def normalize_capabilities(asked: Iterable[str]) -> tuple[str, ...]:
    """Return the list for HERMETIC_CUDA_COMPUTE_CAPABILITIES: lowest first, each once, machine code before PTX.

    Raises UsageError if one is not a capability, or if plain and prefixed ones are mixed.
    """
    items = list(dict.fromkeys(asked))
    parsed = {item: parse_capability(item) for item in items}
    wrong = next((item for item in items if parsed[item] is None), None)
    if wrong is not None:
        raise UsageError(f"not a compute capability: {wrong[:40]!r}", remedy="write it as 7.5, sm_75 or compute_75")
    plain = [item for item, capability in parsed.items() if capability and not capability.kind]
    prefixed = [item for item in items if item not in plain]
    if plain and prefixed:
        raise UsageError(
            "compute capabilities in two forms",
            why=f"{', '.join(plain)} beside {', '.join(prefixed)}: which of them get PTX is not clear",
            remedy="write all as numbers, or all with sm_ or compute_",
        )
    if not plain:
        return tuple(sorted(prefixed, key=lambda item: (order(to_plain(item)), item.startswith("compute"))))
    ordered = sorted(plain, key=order)
    names = [item.replace(".", "") for item in ordered]
    return (*(f"sm_{name}" for name in names[:-1]), f"compute_{names[-1]}")


def to_plain(name: str) -> str:
    parsed = parse_capability(name)
    if parsed is None or not parsed.kind:
        raise UsageError(f"not a compute capability: {name[:40]!r}", remedy="write it as sm_75 or compute_75")
    return parsed.number


def list_plain(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(to_plain(item) for item in names))


def strip_suffix(number: str) -> str:
    """Return a capability without the letter of architecture-specific features: ``9.0`` for ``9.0a``."""
    return number.rstrip("af")


def find_runnable(asked: str, known: Iterable[str]) -> str | None:
    """Return the highest known capability whose machine code runs on a card of capability ``asked``, or None."""
    items = list(known)
    if asked in items:
        return asked
    card = strip_suffix(asked)
    names = {f"sm_{item.replace('.', '')}": item for item in items if item == strip_suffix(item)}
    return max((item for name, item in names.items() if find_coverage([name], card)), key=order, default=None)


def order(plain: str) -> tuple[int, int, str]:
    """Return by what capabilities such as ``9.0a`` are sorted."""
    whole, _, rest = plain.partition(".")
    return int(whole), int(strip_suffix(rest)), rest
