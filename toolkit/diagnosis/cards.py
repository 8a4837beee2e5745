"""Computes what compute capabilities, compilers and the memory of a card say of a failure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolkit.diagnosis.specifiers import compare, read_minor
from toolkit.versions.numbers import to_number
from toolkit.versions.table import load_table

Words = Mapping[str, str]

_BUILDS: Final = {"11": "cu118", "12": "cu126", "13": "cu130"}
"""An index of PyTorch's builds for each major version of CUDA."""
_OLDER: Final = {"11": "450.80.02"}
"""The first driver that runs programs of a major version of CUDA, for those that the version table has not got."""
_DIGITS: Final = 9
"""Digits that are read of a number."""
_FEW: Final = 5
"""Others count from this part of a card's memory on: a context and the screen take less."""


def date_card(words: Words, facts: Words, known: Mapping[str, Any]) -> Words:
    """Return since or until when compilers of CUDA know the card that a line names."""
    card = words.get("card", "")
    number = re.search(r"\d+", card)
    if number is None:
        return {"none": card} if card.rstrip("_") in {"sm", "compute", ""} and "card" in words else {}
    row = known["cards"].get(int(number[0]), {})
    told = {"capability": f"{number[0][:-1]}.{number[0][-1]}", "has": words.get("has", "")}
    here = read_cuda(facts)
    if "since" in row and not ("gone" in row and here and compare(here, f"<{row['gone']}") == "new"):
        # The toolkit builds TensorFlow with CUDA up to 12.8.
        built = {"built": "yes"} if compare(row["since"], "<=12.8") == "" else {}
        older = _find_newest(here, int(number[0]), known) if here else ""
        return {**told, "since": str(row["since"]), **built, **({"older": older, "here": here} if older else {})}
    return {**told, "gone": str(row["gone"])} if "gone" in row else told


def _find_newest(cuda: str, below: int, known: Mapping[str, Any]) -> str:
    """Return the newest capability below one that the compiler of a CUDA knows, without those of Jetson boards."""
    fitting = [
        number
        for number, row in known["cards"].items()
        if number < below
        and number % 10 in {0, 5, 6, 9}
        and compare(cuda, f">={row.get('since', '9.0')}") == ""
        and compare(cuda, f"<{row.get('gone', '99')}") == ""
    ]
    return f"{max(fitting) // 10}.{max(fitting) % 10}" if fitting else ""


def read_cuda(facts: Words) -> str:
    """Return the CUDA that the log names, by itself or in the name of a wheel, as in ``+cu118``; empty if none."""
    wheel = facts.get("CUDA wheels", "")
    return read_minor(facts.get("CUDA", "")) or (f"{wheel[:-1]}.{wheel[-1]}" if len(wheel) == 3 else "")


def find_driver(words: Words, facts: Words, known: Mapping[str, Any]) -> Words:
    """Return the driver that NVIDIA names for the first release of a CUDA that the version table has.

    A version of PTX tells the CUDA that wrote it (``cuda``), and the one of the driver (``taken_cuda``).
    ``suffix`` ends the names of NVIDIA's packages for the one to install; ``drivers`` are the branches for each CUDA.
    """
    told = {"toolchain": "newer"} if words.keys() & {"ptx", "written"} else {}
    if both := [known["ptx"].get(words[name], "") for name in ("written", "taken") if name in words]:
        words = {**words, "cuda": both[0]}
        told |= {"taken_cuda": both[-1]} if len(both) > 1 and all(both) else {}
        major = both[-1].partition(".")[0]
        told |= {"suffix": "" if int(major) > 12 else f"-cu{major}"} if major else {}
    here = _find_new_enough(words, facts, exact=bool(told))
    cuda = words.get("cuda", "") or (read_cuda(facts) if told else "")
    rows = load_table().cuda_rows
    told |= {"here": here} if here else {}
    drivers = [rows[version].driver for version in sorted(rows) if version.startswith(f"{cuda}.")]
    told |= {"cuda": cuda} if cuda else {}
    named = {read_minor(version): rows[version].driver.partition(".")[0] for version in sorted(rows)}
    told["drivers"] = ", ".join(f"{branch} for {minor}" for minor, branch in named.items() if branch)
    told |= _fit_framework(words, facts, known)
    return {**told, "driver": drivers[0]} if drivers and drivers[0] else told


def _fit_framework(words: Words, facts: Words, known: Mapping[str, Any]) -> Words:
    """Return which framework other than TensorFlow a log is of, and what installs it for a CUDA that the driver takes.

    ``taken`` is the CUDA of the driver, and ``own`` that of the framework, where the log says these.
    """
    tables = known["framework_cuda"]
    named = [name for name in ("numba", "CuPy", "JAX", "PyTorch") if name in facts]
    if "no TensorFlow" not in facts or not named or set(named) == {"JAX", "PyTorch"}:
        return {}
    wheels, number, here = tables[named[0]], int(words.get("number", "0")), facts.get("driver", "")
    least = sorted(_list_first_drivers().items())
    majors = [major for major, driver in least if here and to_number(here) >= to_number(driver)]
    taken = f"{number // 1000}.{number % 1000 // 10}" if number else "".join(majors[-1:])
    own = read_cuda(facts)
    major = taken.partition(".")[0] or (str(int(own.partition(".")[0]) - 1) if own else "")
    told = {"framework": named[0], **({"taken": taken} if taken else {}), **({"own": own} if own else {})}
    told |= {f"for_{each}": command for each, command in wheels.items()}
    return {**told, "major": major, "wheel": wheels[major]} if major in wheels else told


def _find_new_enough(words: Words, facts: Words, *, exact: bool) -> str:
    """Return the driver that the log names, if it is new enough for the CUDA of the failure, or for any; else empty.

    ``exact``: a driver of that very CUDA is wanted, not one of its major version.
    """
    here, cuda = facts.get("driver", ""), words.get("cuda", "") or read_cuda(facts)
    rows = load_table().cuda_rows
    if "cuda" in words or exact:
        wanted = [row.driver for version, row in rows.items() if version.startswith(f"{cuda}.")]
    else:
        major = cuda.partition(".")[0] or facts.get("CUDA library", "")
        lowest = _list_first_drivers()
        wanted = [lowest.get(major, "")] if major else [max(lowest.values(), key=to_number)]
    return here if here and wanted and all(wanted) and to_number(here) >= max(map(to_number, wanted)) else ""


def _list_first_drivers() -> dict[str, str]:
    """Return the first driver that runs programs of each major version of CUDA."""
    rows = load_table().cuda_rows.items()
    return _OLDER | {version.partition(".")[0]: row.driver_min for version, row in rows if row.driver_min}


def find_loaded(_words: Words, facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the driver whose module the kernel has loaded, and its branch."""
    loaded = facts.get("driver", "")
    return {"loaded": loaded, "series": loaded.partition(".")[0]} if "module of the driver" in facts else {}


def judge_age(words: Words, facts: Words, known: Mapping[str, Any]) -> Words:
    """Return since or until when a compute capability is known to CUDA, if the CUDA of the log does not know it."""
    named = next(
        (row["capability"] for row in known["card_names"] if re.match(row["match"], words["fact"].lower())), ""
    )
    capability = read_minor(words["fact"]) or str(named)
    card = f"of compute capability {capability}" + (f" ({words['fact']})" if named else "")
    row, here = known["cards"].get(int(capability.replace(".", "") or 0), {}), read_cuda(facts)
    told = {"card": card, "capability": capability}
    # The number of a library tells the major version alone: enough for cards that are gone or that a later one brought.
    major, since = facts.get("CUDA library", ""), str(row.get("since", "0")).partition(".")[0]
    before = major if major and int(major) < int(since) else ""
    for name, wrong, cuda in (("gone", "new", here or major), ("since", "old", here or before)):
        spec = f"{'<' if name == 'gone' else '>='}{row.get(name, '')}"
        if name in row and cuda and compare(cuda, spec) == wrong:
            return {**told, name: str(row[name]), "here": cuda}
    for package, floors in known["least_capabilities"].items():
        least = [floor for since, floor in floors.items() if compare(facts.get(package, ""), f">={since}") == ""]
        if facts.get(package) and least and compare(capability, f">={least[-1]}") == "old":
            return {**told, "least": least[-1], "framework": f"{package} {facts[package]}"}
    return {}


def name_older_compiler(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the compiler before the first one that a CUDA does not take."""
    return {name: str(int(words[word]) - 1) for word, name in (("below", "clang"), ("gcc", "older")) if word in words}


def measure_memory(_words: Words, facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return how much of a card's memory was free, which says whether memory can be why cuDNN did not start.

    XLA guesses that a driver is insufficient, and does not know for which CUDA.
    """
    driver = facts.get("insufficient driver", "")
    enough = re.fullmatch(r"\d+(?:\.\d+)*", driver) and _find_new_enough({}, {**facts, "driver": driver}, exact=False)
    told = {"insufficient": driver} if driver and not enough else {}
    free, whole = (int(facts.get(f"GPU bytes {name}", "0")) for name in ("free", "in all"))
    if not whole:
        return told
    # JAX leaves a quarter of each card free, so that the share says nothing; a handle takes some hundred megabytes.
    sizes = {"free": _say_size(free), "whole": _say_size(whole)}
    return {**told, **sizes, "room": "little" if free < 2**30 else "enough"}


def find_torch_index(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the index of PyTorch whose builds have code for a card that newer ones leave out."""
    number = re.search(r"\d+", words.get("card", ""))
    capability = int(number[0]) if number else 0
    return {"index": "cu126" if capability >= 50 else "cu118"} if 35 <= capability < 75 else {}


def fit_cudnn(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return what pip is to install for a cuDNN that is not older than the one of the build, nor of another major one.

    ``old``: the build is one for CUDA 11, as TensorFlow before 2.14 is.
    """
    built = words.get("built", "")
    major, minor = (int(each[:_DIGITS]) for each in built.split(".")[:2]) if built else (0, 0)
    if major < 8:
        return {"ancient": "yes"} if built else {}
    old = {"old": "yes"} if (major, minor) < (8, 7) else {}
    return {"spec": f"nvidia-cudnn-cu{'11' if (major, minor) < (8, 8) else '12'}>={built},<{major + 1}", **old}


def _say_size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def list_full(lines: Sequence[Words], _known: Mapping[str, Any]) -> Words:
    """Return the numbers of the cards on which not even a context could be made, as their memory is full.

    Where PyTorch tells who holds what, that is what is returned.
    """
    if shares := next((found for each in lines if (found := _find_shares(each))), None):
        return shares
    told = [each for each in lines if each.keys() & {"ordinal", "opened"}]
    numbers = sorted({int(each["ordinal"]) for each in told if "ordinal" in each})
    cards = f"GPU {' and '.join(map(str, numbers))}" if numbers else "the GPU"
    return {"full": cards} if told and told[0] == lines[0] else {}


def _find_shares(words: Words) -> Words:
    """Return what PyTorch itself (``own``) and others (``held``) hold of a card, if others hold more than half.

    In their place stands ``beyond`` if a single request is more than half of the card, and more than is left,
    ``pieces`` if what PyTorch has in reserve would be enough for it, and ``alone`` if next to nothing is of ``others``.
    """
    names = ("total", "free", "own", "allocated", "spare", "process")
    sizes = {name: _read_size(words[name]) for name in names if name in words}
    if not {"total", "free"} <= sizes.keys():
        return {}
    need = _read_size(words.get("need", "0 B"))
    own = sizes.get("own", sizes.get("allocated", 0) + sizes.get("spare", 0))
    spare = own - sizes.get("allocated", own)
    if need > max(sizes["total"] / 2, sizes["free"] + spare):
        return {"beyond": "yes"}
    own = max(own, sizes.get("process", 0))
    held = sizes["total"] - sizes["free"] - own
    if held > sizes["total"] / 2:
        return {"own": _say_size(own), "held": _say_size(held)}
    if spare >= need > 0:
        return {"pieces": _say_size(spare)}
    if held < sizes["total"] / _FEW:
        return {"alone": _say_size(own)}
    return {"own": _say_size(own), "others": _say_size(held)}


def _read_size(text: str) -> int:
    number, _, unit = text.partition(" ")
    return int(float(number) * 1024 ** " KMGT".find(unit[0].upper()) if unit[0] in "KMGTkmgt" else float(number))


def judge_head(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the driver of Windows, whose number is not that of nvidia-smi in WSL."""
    driver = words.get("driver", "")
    return {"windows": driver} if driver and driver != words.get("shown") else {}


def find_torch_build(words: Words, _facts: Words, _known: Mapping[str, Any]) -> Words:
    """Return the builds of PyTorch for whose extensions the found nvcc serves: those of its major version of CUDA."""
    major = words.get("found", "").partition(".")[0]
    return {"wheel": _BUILDS[major]} if major in _BUILDS else {}
