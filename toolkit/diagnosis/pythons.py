"""Computes for which Pythons and systems there are wheels, and which Python to take."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolkit.diagnosis import packages
from toolkit.diagnosis.specifiers import compare, fits, overlap, read_minor, step_below
from toolkit.versions import numbers

_SYSTEMS: Final = {"linux": "linux", "windows": "win32", "win32": "win32", "darwin": "darwin"}
"""Values of sys_platform, by what markers compare with."""
_NAMES: Final = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}
_FACTS: Final = {"win32": "Windows", "darwin": "macOS"}
_MACHINES: Final = {"linux": ("x86_64", "aarch64"), "win32": ("AMD64", "ARM64"), "darwin": ("x86_64", "arm64")}
"""Processors as each system names them: Intel's and AMD's, and ARM."""
_PLATFORMS: Final = {"linux": "Linux", "macosx": "macOS", "win": "Windows"}
"""Systems by a part of a wheel's tag, which are facts of a log too."""
_OLD_LINUX: Final = {"manylinux1_": "2_5", "manylinux2010": "2_12", "manylinux2014": "2_17"}
"""The C library for which the old names of platforms stand."""
_PIPS: Final = {"manylinux2010": ">=19.0", "manylinux2014": ">=19.3", "manylinux_": ">=20.3"}
"""The pip that knows a name of a platform, of which a wheel may have several."""

Words = Mapping[str, str]
Knowledge = Mapping[str, Any]


def list_pythons(package: str, spec: str, known: Knowledge) -> list[str]:
    """Return the Pythons for which some release of a package within a specifier has wheels, the oldest first."""
    package = {"tensorflow-cpu": "tensorflow", "tensorflow-gpu": "tensorflow"}.get(package, package)
    if package != "tensorflow":
        spans = known["pythons"].get(packages.normalize(package), {})
        return [python for python, releases in spans.items() if overlap(releases, spec.strip(" ,"))]
    found: set[int] = set()
    for minor, row in known["tensorflow"].items():
        if any(fits(f"{minor}.{patch}", spec.strip(" ,")) for patch in (0, 1, 9)):
            first, _, last = row["python"].partition(" to ")
            found |= {*range(_order(first), _order(last or first) + 1)}
    return [f"3.{each % 100}" for each in sorted(found)]


def _span(package: str, release: str, known: Knowledge) -> Words:
    """Return for which Pythons a release of a package has wheels, and the newest of them."""
    if package.startswith("tensorflow") and package not in known["pythons"]:
        row = known["tensorflow"].get(read_minor(release), {})
        return {"pythons": row["python"], "newest": _end(row["python"])} if "python" in row else {}
    listed = list_pythons(package, f"=={release}", known)
    return {"pythons": " to ".join(dict.fromkeys([listed[0], listed[-1]])), "newest": listed[-1]} if listed else {}


def find_source_release(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return for which Pythons a release has wheels that pip compiled from its sources, if this is another one."""
    told = _span(words.get("compiled", words.get("package", "")), words.get("release", "none"), known)
    here = read_minor(facts.get("Python", ""))
    return {} if told and here and _has(told["pythons"], here) else told


def find_wanted(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return for which Pythons there are wheels of what a requirement asks for, if this is another one."""
    told = {"offered": _shorten_list(words["listed"].rstrip(")"))} if "listed" in words else {}
    # pip names the way to a requirement as "wisher==1.2->-r list.txt (line 3)".
    asker = words.get("who", "").partition("->")[0].strip()
    if re.match(r"[a-z0-9]", asker, re.IGNORECASE):
        told |= {"asker": asker, "who_name": re.split(r"[\[<>=!~; ]", asker)[0]}
    wanted = re.match(r"([\w.-]+?)(?:\[.*\])? ?([<>=!~].*)$", words["wanted"])
    if wanted is None or "+" in wanted[2]:
        return told
    least = re.search(r"(?:>=|==|~=)([\d.]+)", wanted[2])
    asked = {"package": wanted[1], "first": "", "asked": least[1] if least else "9999", "listed": words["listed"]}
    if intel := _judge_intel_list(asked, facts, known):
        return {**told, **intel, "package": wanted[1]}
    listed = list_pythons(wanted[1], wanted[2], known)
    if not listed or read_minor(facts.get("Python", "")) in listed:
        return told
    return {**told, "pythons": " to ".join(dict.fromkeys([listed[0], listed[-1]])), "newest": listed[-1]}


def _shorten_list(listed: str) -> str:
    """Return a list of releases by its ends, if it is long."""
    each = [release.strip() for release in listed.split(",")]
    return listed if len(each) < 6 else f"{each[0]} to {each[-1]}"


def find_pythons(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the Pythons for which a release that pip does not find has wheels."""
    package = words["package"]
    told = {**read_marker(words, facts, known), **_find_neighbours(words, known)}
    if pinner := re.search(r"\(from ([a-z0-9][\w.\[\]<>=!~,-]*)(?:->|\))", words.get("marker", ""), re.IGNORECASE):
        told |= {"pinner": pinner[1], "pinner_name": re.split(r"[\[<>=!~]", pinner[1])[0]}
    told |= {"empty": "yes"} if packages.normalize(package) == "tensorflow-intel" and words["first"] == "0.0.1" else {}
    if package == "tensorflow" and "upper" not in told:
        told |= _read_list(words, known)
    if "upper" in told:
        return told
    return {**told, **_span(package, words["asked"], known), **_judge_intel_list(words, facts, known)}


def _end(pythons: str) -> str:
    return pythons.rpartition(" ")[2]


def _read_list(words: Words, known: Knowledge) -> Words:
    """Return of which Python or system pip's list of TensorFlow is, by its ends, if that excludes what is wanted."""
    asked = read_minor(words["asked"])
    listed = re.findall(r"\d+\.\d[\w.]*", f"{words['first']}{words.get('listed', '')}")
    if not listed:
        return {}
    first, last = (_find_nearest(read_minor(end), known["tensorflow"]) for end in (listed[0], listed[-1]))
    everywhere: Words = {}
    found: list[tuple[str, Words, bool]] = []
    pythons = {each for row in known["tensorflow"].values() for each in row["python"].split(" to ")}
    for python in sorted(pythons):
        span = [minor for minor, row in known["tensorflow"].items() if _has(row["python"], python)]
        for system in (everywhere, *known["tensorflow_lists"]):
            part = [
                each
                for each in span
                if _order(system.get("first", each)) <= _order(each) <= _order(system.get("last", each))
            ]
            limits = part and (system is everywhere or part != span) and part[0] == first
            if limits and (part[-1] == last or "listed" not in words):
                found.append((python, system, asked not in span))
    told: Words = {"last": listed[-1]} if words.get("listed") else {}
    systems = {system.get("where", "") for _, system, _ in found}
    if len({python for python, _, _ in found}) == 1 and found[0][2]:
        return {**told, "is_python": found[0][0]}
    if len(systems) == 1 and "" not in systems and ("listed" in words) != ("first" in found[0][1]):
        system, newest = found[0][1], _end(known["tensorflow"].get(asked, {}).get("python", ""))
        texts = {name: str(system[name]) for name in ("where", "try", "run", "run_also") if name in system}
        filled = {
            name: text.replace("{asked}", words["asked"]).replace("{newest}", newest) for name, text in texts.items()
        }
        return {**told, **{f"is_{name}": text for name, text in filled.items()}}
    return {}


def _find_nearest(minor: str, releases: Iterable[str]) -> str:
    """Return the release of TensorFlow that is nearest to one that pip lists, which may be too old for the table."""
    return min(releases, key=lambda each: abs(_order(each) - _order(minor)))


def _order(minor: str) -> int:
    major, _, number = minor.partition(".")
    return int(major) * 100 + int(number)


def _has(pythons: str, python: str) -> bool:
    first, _, last = pythons.partition(" to ")
    return _order(first) <= _order(python) <= _order(last or first)


def _find_neighbours(words: Words, known: Knowledge) -> Words:
    """Return the releases before and after the one that is wanted, if a list has it not and both of these."""
    listed = re.findall(r"[\w.]+", f"{words['first']}{words.get('listed', '')}")
    whole = [each for each in listed if not re.search("[a-z]", each)] or listed
    lower = [each for each in whole if compare(each, f"<{words['asked']}") == ""]
    upper = [each for each in whole if compare(each, f">{words['asked']}") == ""]
    if words["asked"] in listed or not lower or not upper:
        return {}
    asker = re.search(r"\(from ([\w-]+)", words.get("marker", ""))
    together = asker and {asker[1], words["package"]} <= {*known["tensorflows"]}
    return {"lower": lower[-1], "upper": upper[0], **({"asker": asker[1]} if asker and together else {})}


def read_marker(words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return for which system a requirement is, by its marker, and whether it is another one than the log's."""
    text = words.get("marker", "") or words.get("split", "")
    system = re.search(r"(?:sys_platform|platform_system) ?== ?['\"](\w+)", text)
    processor = re.search(r"platform_machine ?== ?['\"](\w+)", text)
    marked = _SYSTEMS.get(system[1].lower(), "") if system else ""
    arm = processor is not None and processor[1].lower() in {"aarch64", "arm64"}
    told = {"marked": marked, "for": _NAMES[marked]} if marked else {}
    if processor:
        told["for"] = f"{_NAMES.get(marked, 'machines')} on {'ARM' if arm else 'processors of Intel and AMD'}"
    here = next((each for each, fact in _FACTS.items() if fact in facts), "linux")
    arm_here = "ARM" in facts or "Apple's processor" in facts
    if told and ((marked or here) != here or (processor and arm != arm_here)):
        mine = _MACHINES[here][arm_here] if processor else ""
        told["elsewhere"] = told["for"]
        told["mine"] = f"sys_platform == '{here}'" + (f" and platform_machine == '{mine}'" if mine else "")
    return told


def read_requirement(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return what the marker of a requirement says, and where the build of PyTorch is that it names.

    ``circular``: the package that wants something is the one that the requirements name.
    """
    asker, asked = (re.split(r"[\[<>=!~]", words.get(name, ""))[0] for name in ("who", "asked"))
    told = {"circular": "yes"} if asker and asker == asked else {}
    if sought := re.match(r"([\w.-]+)(?:\[.*\])?([<>=!~].*)?$", words.get("sought", "")):
        told["sought_name"] = sought[1]
        listed = list_pythons(sought[1], sought[2] or "", known) if sought[1] in known["tensorflows"] else []
        if listed and read_minor(facts.get("Python", "")) not in listed:
            told |= {"pythons": " to ".join(dict.fromkeys([listed[0], listed[-1]])), "newest": listed[-1]}
    told["pytorch"] = f"https://download.pytorch.org/whl/{facts.get('index of PyTorch', 'cu128')}"
    return {**read_marker(words, facts, known), **packages.read_local(words, facts, known), **told}


def judge_systems(known: Words, facts: Words) -> Words:
    """Return the words of a failure without what a table says of a package's systems, if the log speaks against it.

    ``newer`` is the Python of the log if no release has a wheel for it on Windows, where the log was written.
    """
    here = read_minor(facts.get("Python", ""))
    if "Windows" in facts and "windows_python" in known and fits(here, f">{known['windows_python']}"):
        known = {**known, "newer": here}
    if "only" not in known:
        return known
    # Only later releases have no wheel for the other systems.
    if known["below"] and fits(known.get("asked", ""), known["below"]):
        return {**{name: word for name, word in known.items() if name != "only"}, "renew": known["package"]}
    # A list of versions, or the marker of the requirement, proves that this system is the one with wheels.
    if not known["below"] and ("first" in known or known.get("marked") == known["only"]):
        return {name: word for name, word in known.items() if name != "said"}
    return known


def fit_python(words: Words, _facts: Words, _known: Knowledge) -> Words:
    """Return a Python that a specifier takes: the last one below its upper limit, or its lower limit."""
    limits = re.findall(r"([<>]=?|==|~=)\s*(3\.\d+)", words.get("range", ""))
    for sign, version in sorted(limits, key=lambda limit: not limit[0].startswith("<")):
        return {"fitting": step_below(version) if sign == "<" else version}
    return {}


def compare_tag(words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return which parts of a wheel's tag do not fit the Python, system, processor and pip that the log shows.

    ``misfit`` says these and ``advice`` what to do; ``fitting`` is the Python where no part is known that does not fit.
    """
    platform, here = words.get("platform", ""), read_minor(facts.get("Python", ""))
    built = numbers.find_pythons(words.get("python", "") and f"cp{words['python']}")
    stable = words.get("abi") == "abi3" and any(fits(here, f">={each}") for each in built)
    found = dict(_compare_platform(platform, facts))
    name, _, version = words.get("wheel", "").rpartition("/")[2].partition("-")
    other = any(each.startswith("it is for") for each in found)
    told: dict[str, str] = {}
    if built and here and here not in built and not stable:
        told, other = {"built": built[0], "here": here}, True
        advice = f"Use Python {built[0]}, or take the wheel for Python {here}."
        found = {f"it is for Python {built[0]}, and this is Python {here}": advice, **found}
    if not found:
        return {"fitting": here} if built and here else {}
    told |= {"misfit": "; ".join(found), "advice": " ".join(found.values())}
    told |= {"update": "python -m pip install --upgrade pip"} if any(each.startswith("pip") for each in found) else {}
    return {**told, "named": f"{name}=={version}"} if other and re.fullmatch(r"[\d.]+", version) else told


def _compare_platform(platform: str, facts: Words) -> Iterator[tuple[str, str]]:
    """Yield what of the platform of a wheel's tag is other than what the log shows, and what to do.

    The name of the wheel itself shows its system, so that another one beside it counts.
    """
    system = next((name for mark, name in _PLATFORMS.items() if mark in platform), "")
    shown = {name for name in _PLATFORMS.values() if name in facts}
    shown = (shown - {"Windows"}) | {"Linux"} if "WSL" in facts else shown
    if system and (others := " or ".join(sorted(shown - {system}))):
        yield f"it is for {system}, and this is {others}", f"Take the wheel for {others}."
        return
    arm_here = "ARM" in facts or "Apple's processor" in facts
    of_arm = re.search(r"(?:aarch|arm)64$", platform) is not None
    if (of_arm and "x86-64" in facts) or (re.search(r"x86_64$|amd64$", platform) and arm_here):
        mine, its = ("Intel or AMD", "ARM") if of_arm else ("ARM", "Intel or AMD")
        advice = "Take the wheel for this processor, or in a container an image for that one."
        yield f"it is for a processor of {its}, and this one is of {mine}", advice
    elif platform.endswith("64") and "Python of 32 bits" in facts:
        yield "it is for a Python of 64 bits, and this one has 32", "Install the Python of 64 bits, and use that."
    if "manylinux" in platform:
        yield from _compare_linux(platform, facts)


def _compare_linux(platform: str, facts: Words) -> Iterator[tuple[str, str]]:
    """Yield whether the C library or pip of a log is too old for the names of a wheel's platform."""
    names = [glibc for mark, glibc in _OLD_LINUX.items() if mark in platform]
    names += re.findall(r"manylinux_(\d+_\d+)_", platform)
    least = min((_order(each.replace("_", ".")) for each in names), default=0)
    here = read_minor(facts.get("C library", ""))
    if "musl" in facts:
        advice = (
            "Use an image or system with the C library of GNU (such as python:3.12-slim in place of one of Alpine)."
        )
        yield "it is for the C library of GNU, and this system has musl, as Alpine has", advice
    elif here and least > _order(here):
        advice = "Use a newer distribution or an image of one, or an older release with a wheel for this C library."
        yield f"it wants a C library from {least // 100}.{least % 100} on, and this one is {here}", advice
    known = next((spec for mark, spec in _PIPS.items() if mark in platform), "")
    if known and compare(facts.get("pip", ""), known) == "old":
        said = (
            f"pip {facts['pip']} does not know the name of its platform, as pip {known.removeprefix('>=')} and later do"
        )
        yield said, "Update pip first."


def find_wheels(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return for which Pythons and systems a TensorFlow has wheels, or which releases have some for this Python."""
    if "local" in words:
        told = packages.read_local(words, facts, known)
        pythons = _span(told["library"], told["release"], known).get("pythons", "") if told else ""
        return {**told, "limits": f"torch {told['release']} has wheels for Python {pythons}. " if pythons else ""}
    if words.get("package") not in {"tensorflow", "tensorflow-cpu", "tensorflow-gpu"}:
        return read_marker(words, facts, known)
    if asked := words.get("asked", ""):
        row = known["tensorflow"].get(read_minor(asked), {})
        systems = next((text for spec, text in known["tensorflow_systems"].items() if fits(asked, spec)), "")
        pythons = str(row.get("python", "") or ("3.5 to 3.6" if fits(asked, "<1.13") else ""))
        if not pythons:
            return {}
        first, _, last = pythons.partition(" to ")
        here = read_minor(facts.get("Python", ""))
        told = {"pythons": pythons, "newest": last, "systems": systems}
        other = {"other": here} if here else {}
        told |= {"python_fits": "yes"} if fits(here, f">={first},<={last or first}") else other
        told |= {"apple": "yes"} if "Apple's processor" in facts and fits(asked, "<2.13") else {}
        return {**told, "asked_minor": read_minor(asked)}
    here = read_minor(facts.get("Python", ""))
    ranges = {minor: row["python"].split(" to ") for minor, row in known["tensorflow"].items()}
    fitting = [minor for minor, limits in ranges.items() if fits(here, f">={limits[0]},<={limits[1]}")]
    if fitting:
        return {"here": here, "since": fitting[0], "until": fitting[-1]}
    newest = [*ranges.values()][-1][1]
    return {"lacks": here, "newest": newest} if fits(here, f">{newest}") else {}


def read_tags(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return of which Python or platform the wheels are, where uv says it."""
    told = {"package": words.get("package", "a package")}
    if "registry" in words and not re.match("torch|triton|nvidia|pytorch", told["package"]):
        told["pytorch"] = words["registry"]
    if "here" in words:
        told["here"] = f"{words['here'][0]}.{words['here'][1:]}"
    if "active" in words and "here" in told:
        told["bound"] = f">={words['active']},<{told['here']}"
    if listed := numbers.find_pythons(words.get("tags", "")):
        return {**told, "listed": ", ".join(listed), "newest": listed[-1]}
    if "here" in words and "asked" in words:
        wheels = find_wheels(words, {}, known)
        listed_by_table = {"listed": wheels["pythons"], "newest": wheels["newest"]} if wheels else {}
        return {**told, "lacking": words["asked"], **listed_by_table}
    if "system" not in words:
        apple = "Apple's processor" in facts and fits(words.get("asked", ""), "<2.13")
        wheels = find_wheels(words, {}, known) if "asked" in words else {}
        return {**told, **wheels, **({"apple": "yes"} if apple and wheels else {})}
    system = words["system"].replace("`", "")
    if "wheels" in words and re.search("win_amd64|linux.*x86_64", system):
        told["full"] = f"{words['locked']}+{words['wheels']}"  # builds with a local version are for these systems alone
    on_intel = "macosx" in system and "x86_64" in system
    hint = " On a Mac with Apple's processor this Python is one for Intel: use one for arm64." if on_intel else ""
    if "manylinux" in system and "manylinux" in words.get("platforms", ""):
        hint = " Where the numbers differ, wheels want a newer C library: use a newer distribution, or an image of one."
    return {**told, "system": system, "hint": hint, **(_judge_intel(words, known) if on_intel else {})}


def _judge_intel(words: Words, known: Knowledge) -> Words:
    """Return the last release for Macs with Intel's processor of a package, if a newer one is wanted."""
    last = known["intel_macs"].get(words.get("package", ""), {})
    if not last or fits(words.get("asked", "9999"), f"<={last['intel']}"):
        return {}
    return {**last, "intel_newest": _span(words["package"], last["intel"], known)["newest"]}


def _judge_intel_list(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the same where pip's list ends as on such a Mac, and as for no Python elsewhere."""
    if words["package"] == "tensorflow" or ("macOS" not in facts and {"Linux", "Windows"} & facts.keys()):
        return {}
    listed = re.findall(r"\d+\.\d[\w.+]*", words.get("listed", ""))
    told = _judge_intel(words, known)
    ends = [limits.rpartition("=")[2] for limits in known["pythons"].get(words["package"], {}).values()]
    return told if told and listed and listed[-1] == told["intel"] and told["intel"] not in ends else {}
