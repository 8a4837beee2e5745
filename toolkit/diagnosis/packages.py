"""Computes what versions of packages say of a failure: too old or too new, lost or got, which Python has wheels."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from toolkit.versions import numbers

_ANY: Final = "*"
_OTHER_NAMES: Final = {
    "tensorflow_core": "tensorflow",
    "tensorflow._api.v1": "tensorflow",
    "tensorflow._api.v2": "tensorflow",
    "tensorflow.keras": "keras",
    "keras._tf_keras.keras": "keras",
    "keras.api": "keras",
}
"""Other names of modules."""
_TYPES: Final = frozenset({"str", "list", "dict", "int", "float", "tuple", "set", "bytes"})

Words = Mapping[str, str]
Knowledge = Mapping[str, Any]


def compare(found: str, spec: str) -> str:
    """Return ``old`` or ``new`` for a version that a specifier excludes; empty if it does not, or nobody can say."""
    # The library is slow to load, and commands that diagnose nothing import this module.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        version, wanted = Version(found), SpecifierSet(spec.rstrip(", "))
    except (InvalidVersion, InvalidSpecifier):
        return ""
    for each in wanted:
        if each.contains(version, prereleases=True):
            continue
        limit = Version(each.version.removesuffix(".*"))
        return "old" if version < limit or each.operator in {">", ">="} else "new"
    return ""


def fits(found: str, spec: str) -> bool:
    """Return whether a version is one that a specifier takes; not if nobody can say."""
    return bool(found) and compare(found, spec) == "" and compare(found, "<0") == "new"


def overlap(one: str, other: str) -> bool:
    """Return whether some version that either specifier names, or one beside it, is in both."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    both = SpecifierSet(one) & SpecifierSet(other)
    limits = {Version(Version(each.version.removesuffix(".*")).base_version) for each in both}
    near = {Version(f"{limit}.{tail}") for limit in limits for tail in ("0", "1", "post1")}
    below = {Version(f"{limit.major}.{max(limit.minor - 1, 0)}") for limit in limits}
    return any(version in both for version in limits | near | below)


def read_minor(version: str) -> str:
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""


def find_wish(package: str, facts: Words, known: Knowledge) -> str:
    """Return what the TensorFlow of the log wants of a package."""
    release = facts.get("TensorFlow", "")
    row, name = known["tensorflow"].get(read_minor(release), {}), package.replace("-", "_")
    return str(row.get("but", {}).get(release, row).get(name, row.get(name, "")))


def normalize(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def weigh(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return whether an installed package is too old or too new for another, and what is to give way."""
    package, spec, found, who = (words.get(name, "").strip() for name in ("package", "spec", "found", "who"))
    direction = compare(found, spec)
    told = {"who": who or "the package that asks", "asker": who or "A package", "package": package, "spec": spec}
    if not direction:
        return told
    told |= {"too": direction, "another": "a newer" if direction == "new" else "an older"}
    held = find_wish(package, facts, known)
    if normalize(package) in known["followers"]:
        return {**told, "follower": package, "requirement": _require(package, facts, known)}
    if normalize(package) in {"tensorflow", "tensorflow-cpu"}:
        return {**told, "tensorflow": found}
    return {**told, "held": held} if held and normalize(who) != "tensorflow" and not overlap(spec, held) else told


def date_name(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return which package a missing name or module is of, and since or until when that has it."""
    module = f"keras.{words['part']}" if "part" in words else words.get("module", words.get("imported", ""))
    module = module.replace("tensorflow_core", "tensorflow") or words.get("within", "")
    name = words.get("name", _ANY)
    top = module.partition(".")[0]
    raiser = words.get("raiser", "").lower()
    package = known["modules"].get(top, top.replace("_", "-"))
    told = {"module": module or "a package", "top": top, "package": package, "member": f"{module}.{name}"}
    told["distribution"] = package.strip("'").partition("<")[0]
    if "within" in words and top in {*known["modules"], *known["foundations"]}:
        return {**told, "emptied": top}
    if top and raiser == top and (module != top or name.startswith("_")):
        return {**told, "mixed": top}
    if family := next((each for each in known["families"] if _is_of(each, {top, raiser})), None):
        told |= {"family": family["what"], "install": family["install"]}
    row = next(_list_names(module, name, known["names"]), None)
    if row is None or _is_denied(row, facts):
        return {**told, **_guess(module, name, package, facts, known)}
    package = str(row["package"])
    use = row["names"].get(name, "") if isinstance(row["names"], dict) else row.get("instead", "")
    held = find_wish(package, facts, known)
    told |= {
        "package": package,
        "what": _tell_lost(row, module, name),
        "instead": f"It is to use {use}. " if use else "",
        **({"follows": row["follows"]} if "follows" in row else {}),
        "takes": f"; this TensorFlow takes {package}{held}" if held else "",
    }
    told.pop("family", None)
    if "gone" in row:
        gone = str(row["gone"])
        until = f"to {row['back']}" if "back" in row else "and later"
        return {**told, "gone": gone, "until": until, "below": _step_below(gone) if package == "Python" else ""}
    since = str(row["since"])
    stays = held and not overlap(f">={since}", held)
    if package == "keras" and since.startswith("2."):
        told["with_tensorflow"] = "yes"
    return {**told, "since": since, **({"held": held} if stays else {})}


def find_version(package: str, facts: Words) -> str:
    """Return the version of a package that the log shows; empty if it shows none."""
    return facts.get({"tensorflow": "TensorFlow", "numpy": "NumPy", "keras": "Keras"}.get(package, package), "")


def _is_denied(row: Mapping[str, Any], facts: Words) -> bool:
    """Return whether the log shows a version that has the name, though a row says that the installed one lacks it."""
    found = find_version(str(row["package"]), facts)
    return fits(found, f"<{row['gone']}" if "gone" in row else f">={row['since']}")


def _guess(module: str, name: str, package: str, facts: Words, known: Knowledge) -> Words:
    """Return what a name or module that no table has may be."""
    top = module.partition(".")[0]
    if name == _ANY and top == module:
        follower = package in known["followers"]
        required = {"follower": package, "requirement": _require(package, facts, known)} if follower else {}
        return {"whole": module, **required}
    if top in _TYPES:
        return {"plain": top}
    if top in sys.stdlib_module_names:
        return {"stdlib": top}
    if top and module == top and name in {"__version__", "__file__", *known["always"].get(top, ())}:
        return {"hollow": top}
    return {} if not top or top[0].isupper() else {"guess": top}


def _is_of(family: Mapping[str, Any], modules: set[str]) -> bool:
    members = {*family["modules"]}
    return modules <= members if family.get("both") else bool(modules & members)


def _require(package: str, facts: Words, known: Knowledge) -> str:
    """Return a requirement of the release of a package that belongs to the TensorFlow of the log."""
    minor, name = read_minor(facts.get("TensorFlow", "")), normalize(package)
    release = known["releases"].get(name, {minor: minor}).get(minor)
    return f"{name}~={release}.0" if release else name


def find_release(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return which release of a package that is made for one TensorFlow belongs to the one of the log."""
    owner = words.get("owner", "tensorflow_probability" if "found" in words else "")
    if not owner or owner in known["foundations"]:
        return {}
    package = known["modules"].get(owner, normalize(owner))
    minor = read_minor(words.get("found", "") or facts.get("TensorFlow", ""))
    release = minor if package == "tensorflow-text" else known["releases"].get(package, {}).get(minor, "")
    told = {"package": package, "spec": words.get("spec", "").strip(), **judge_release(words, facts, known)}
    return {**told, "release": release, "minor": minor} if release else told


def judge_release(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the versions of a package and of the framework for which it was compiled, if these belong together."""
    package = known["modules"].get(words.get("owner", ""), normalize(words.get("owner", "")))
    version = read_minor(find_version(package, facts))
    for base, fact, table in (("tensorflow", "TensorFlow", "releases"), ("torch", "torch", "torch_releases")):
        minor = read_minor(facts.get(fact, ""))
        if minor and package in known[table] and version == known[table][package].get(minor, minor):
            beside = {"base": base, "base_version": facts[fact], "base_minor": minor}
            return {"package": package, "whole": find_version(package, facts), "own_minor": version, **beside}
    return {}


def find_own(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return whether the file that was imported as a module is one of one's own."""
    file = words.get("file", "")
    module = words.get("module", re.split(r"[\\/]", file)[-1].removesuffix(".py"))
    top = module.partition(".")[0]
    told = {"top": top, "package": known["modules"].get(top, top.replace("_", "-"))}
    if not file:
        return told
    installed = re.search(r"(?:site|dist)-packages[\\/]|[\\/]lib[\\/]python", file.lower())
    return {**told, "half": module} if installed else {**told, "own": file}


def read_file(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the name of a shared library without its folder, and the package in whose folder it is to lie.

    ``dependent`` is the library that was asked for, if it is there and this one is what it needs.
    """
    if "library" not in words:
        return {}
    path = words["library"].replace("\\", "/")
    match = re.search(r"/(?:site|dist)-packages/(\w+)/", path) or re.search(r"/(\w+)/\1/[^/]+$", path)
    major = re.search(r"\.so\.(\d+)", path)
    told = {"file": path.rpartition("/")[2]}
    if facts.get("L4T of the image", here := facts.get("L4T", "")) != here:
        told |= {"image": facts["L4T of the image"], "board": here} if here else {}
    asked = words.get("asked", "").rpartition("/")[2]
    if asked and asked != told["file"]:
        here, wanted = facts.get("CUDA library", ""), _find_cuda(told["file"], known)
        mix = f": it is of CUDA {wanted}, and this program of CUDA {here}" if here and wanted not in {"", here} else ""
        told |= {"dependent": asked, "mix": mix}
    if re.search(r"/[^/]*(?:\.dist|~\d\.dis|_mei\d+)/", path.lower()):
        return {**told, "frozen": "yes"}
    # Since CUDA 13 the names of NVIDIA's packages have no number; before 11 there are none.
    if major is None or int(major[1]) >= 11:
        told["suffix"] = f"-cu{major[1]}" if major and int(major[1]) < 13 else ""
    if match is None or match[1] in known["foundations"] or match[1] == "nvidia":
        return told
    return {**told, "owner": known["modules"].get(match[1], match[1])}


def _find_cuda(file: str, known: Knowledge) -> str:
    """Return the major version of CUDA of which a library is, by the number in its name; empty if it does not say."""
    match = re.match(r"lib(\w+?)(?:Lt)?\.so\.(\d+)", file)
    return (
        str(known["cuda_numbers"].get(match[1], {}).get(int(match[2]), match[2]))
        if match and match[1] in known["cuda_numbers"]
        else ""
    )


def find_majors(lines: Sequence[Words], known: Knowledge) -> Words:
    """Return the major versions of CUDA whose libraries one process opened, if there are several."""
    files = {
        _find_cuda(each["library"].rpartition("/")[2], known): each["library"].rpartition("/")[2] for each in lines
    }
    files.pop("", None)
    majors = sorted(files, key=int)
    return (
        {"majors": " and ".join(majors), "files": ", ".join(files[each] for each in majors)} if len(majors) > 1 else {}
    )


def _tell_lost(row: Mapping[str, Any], module: str, name: str) -> str:
    """Return what is missing: a name of a module, or the module itself if all of it is."""
    whole = row["names"] == [_ANY] and (module == row["module"] or module.startswith(f"{row['module']}."))
    return module if name == _ANY or whole else f"{module}.{name}"


def _step_below(version: str) -> str:
    major, _, minor = version.partition(".")
    return f"{major}.{int(minor) - 1}"


def _list_names(module: str, name: str, rows: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for other, usual in _OTHER_NAMES.items():
        if module == other or module.startswith(f"{other}."):
            module = usual + module.removeprefix(other)
    for row in rows:
        whole = str(row["module"])
        if row["names"] == [_ANY]:
            # `module.part` may be a name of a module, or a module itself; one in which a name was looked for is there.
            parts = row.get("parts", "gone" in row)
            within = module == whole or (parts and module.startswith(f"{whole}."))
            if (within and not (name != _ANY and "gone" in row and module == whole)) or f"{module}.{name}" == whole:
                yield row
        elif (
            (module in {whole, _shorten(whole)} or (row.get("parts") and module.startswith(f"{whole}.")))
            and any(fnmatchcase(name, each) for each in row["names"])
        ) or (
            ("gone" in row or name == _ANY)
            and any(fnmatchcase(module, f"{whole}.{each}") for each in row["names"] if name == _ANY or "*" not in each)
        ):
            yield row


def _shorten(module: str) -> str:
    """Return the short name by which programs import a module."""
    return {"numpy": "np", "tensorflow": "tf", "pandas": "pd"}.get(module, module)


def find_pythons(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return the Pythons for which a TensorFlow that pip does not find has wheels."""
    package = words.get("package", "tensorflow")
    row = known["tensorflow"].get(read_minor(words["asked"]), {})
    passed = "last" in words and compare(words["last"], f">{words['asked']}") == ""
    if not package.startswith("tensorflow") or "python" not in row or passed:
        return {"package": package}
    return {"package": package, "pythons": row["python"], "newest": row["python"].rpartition(" ")[2]}


def fit_python(words: Words, _facts: Words, _known: Knowledge) -> Words:
    """Return a Python that a specifier takes: the last one below its upper limit, or its lower limit."""
    limits = re.findall(r"([<>]=?|==|~=)\s*(3\.\d+)", words.get("range", ""))
    for sign, version in sorted(limits, key=lambda limit: not limit[0].startswith("<")):
        return {"fitting": _step_below(version) if sign == "<" else version}
    return {}


def compare_python(words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return for which Python a wheel was built and which one is here, if these differ."""
    built, here = numbers.find_pythons(words.get("python", "") and f"cp{words['python']}"), facts.get("Python", "")
    return {"built": built[0], "here": read_minor(here)} if built and here and built[0] != read_minor(here) else {}


def find_wheels(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return for which Pythons and systems a TensorFlow has wheels, or which releases have some for this Python."""
    if words.get("package") not in {"tensorflow", "tensorflow-cpu"}:
        return {}
    if asked := words.get("asked", ""):
        row = known["tensorflow"].get(read_minor(asked), {})
        systems = next((text for spec, text in known["tensorflow_systems"].items() if fits(asked, spec)), "")
        pythons = str(row.get("python", ""))
        return {"pythons": pythons, "newest": pythons.rpartition(" ")[2], "systems": systems} if pythons else {}
    here = read_minor(facts.get("Python", ""))
    ranges = {minor: row["python"].split(" to ") for minor, row in known["tensorflow"].items()}
    fitting = [minor for minor, limits in ranges.items() if fits(here, f">={limits[0]},<={limits[1]}")]
    if fitting:
        return {"here": here, "since": fitting[0], "until": fitting[-1]}
    newest = [*ranges.values()][-1][1]
    return {"lacks": here, "newest": newest} if fits(here, f">{newest}") else {}


def read_path(words: Words, _facts: Words, _known: Knowledge) -> Words:
    """Return whether a path in a message is empty."""
    return {"nothing": "yes"} if words.get("file", "x") == "" else {}


def read_tags(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return of which Python or platform the wheels are, where uv says it."""
    told = {"package": words.get("package", "a package")}
    if "registry" in words and not re.match("torch|triton|nvidia|pytorch", told["package"]):
        told["pytorch"] = words["registry"]
    if "here" in words:
        told["here"] = f"{words['here'][0]}.{words['here'][1:]}"
    if listed := numbers.find_pythons(words.get("tags", "")):
        return {**told, "listed": ", ".join(listed), "newest": listed[-1]}
    if "here" in words and "asked" in words:
        wheels = find_wheels(words, {}, known)
        listed_by_table = {"listed": wheels["pythons"], "newest": wheels["newest"]} if wheels else {}
        return {**told, "lacking": words["asked"], **listed_by_table}
    if "system" not in words:
        return told
    system = words["system"].replace("`", "")
    on_intel = "macosx" in system and "x86_64" in system
    hint = " On a Mac with Apple's processor this Python is one for Intel: use one for arm64." if on_intel else ""
    if "manylinux" in system and "manylinux" in words.get("platforms", ""):
        hint = " Where the numbers differ, wheels want a newer C library: use a newer distribution, or an image of one."
    return {**told, "system": system, "hint": hint}


def compare_protobuf(words: Words, _facts: Words, _known: Knowledge) -> Words:
    if "wanted" not in words:
        return {}
    older = compare(words["found"], f">={words['wanted']}")
    return {
        "following": str(int(words["wanted"].partition(".")[0]) + 1),
        "differs": "which is older" if older else "which is of a later major version",
    }


def read_virtual(words: Words, _facts: Words, _known: Knowledge) -> Words:
    spec = words.get("spec", "").strip()
    wanted = re.search(r"\d+(?:\.\d+)*", spec)
    package = words["package"].lower()
    variable = f"CONDA_OVERRIDE_{package.removeprefix('__').upper()}"
    return {
        "package": package,
        "spec": spec or "there",
        "variable": variable,
        "value": wanted[0] if wanted else "VERSION",
    }


def name_asker(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return the name of a conda package, without its version and build, that is none of TensorFlow's own."""
    asked = re.sub(r"-\d[^-]*-[^-]+$", "", words.get("who", ""))
    ours = {*known["tensorflows"], *known["followers"], "tensorflow-base", "keras", "cudnn", "cudatoolkit", ""}
    return {} if asked in ours else {"asked": asked}
