"""Weighs what all packages of a log ask of others together: the bounds within all of them, and who stands out."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolkit.diagnosis.packages import normalize
from toolkit.diagnosis.specifiers import compare, overlap, read_minor

_CENTRES: Final = frozenset({"torch", "jax", "jaxlib"})
"""Packages to whose release others belong, besides TensorFlow."""

Words = Mapping[str, str]


def reconcile(lines: Sequence[Words], known: Mapping[str, Any]) -> Words:
    """Return what several wishes for other versions mean together: their bounds, and which package is to change.

    ``blamed`` is the package of which most lines are, if all that it asks for is installed newer, or all older.
    """
    wishes = {(each.get("who", "a package").strip(), each["package"]): each for each in lines if "found" in each}
    if len(wishes) < 2:
        return {}
    bounds = {package: _gather(wishes, package) for package in dict.fromkeys(package for _, package in wishes)}
    told = {
        "wishes": "; ".join(_say(who, each) for (who, _), each in wishes.items()),
        "requirements": _quote(bounds),
    }
    if clashing := [name for name, spec in bounds.items() if not spec]:
        told["clash"] = clashing[0]
    package = normalize(next(iter(bounds)))
    if len(bounds) == 1 and package in {*known["tensorflows"], *_CENTRES}:
        told |= {"centre": package, "askers": " ".join(dict.fromkeys(who for who, _ in wishes))}
    who, count = Counter(who for who, _ in wishes).most_common(1)[0]
    directions = {compare(each["found"], each["spec"].strip()) for (other, _), each in wishes.items() if other == who}
    if count < 2 or 2 * count <= len(wishes) or len(directions) > 1:
        return told
    others = sorted({normalize(other) for other, _ in wishes} - {normalize(who), "a-package"})
    left = {package: _gather(wishes, package, who) for package in bounds}
    if "tensorflow" in others and left.get("numpy") and overlap(left["numpy"], "<2"):
        left["numpy"] = "<2"  # pip may take a TensorFlow before 2.18, which does not say that NumPy 2 is too new
    anew = "tensorflow" if normalize(who) in known["tensorflows"] else who
    age = "older" if directions == {"new"} else "newer"
    return {**told, "blamed": who, "age": age, "anew": " ".join([anew, *others, _quote(left)]).strip()}


def _say(who: str, wish: Words) -> str:
    asker = f"{who} {wish.get('version', '')}".strip()
    return f"{asker} wants {wish['package']}{wish['spec'].strip()} ({wish['found']} is here)"


def find_conflict(lines: Sequence[Words], known: Mapping[str, Any]) -> Words:
    """Return which packages want what the requirements do not name, or what excludes each other, as pip lists it."""
    wishes = [
        {**each, "limit": _read_limit(each["limit"].strip())}
        for each in map(_read_uv, lines)
        if "wisher" in each and "|" not in each["limit"]
    ]
    requested = [_join(f"{each['asked']}{each.get('further', '')}") for each in lines if "asked" in each]
    where = next(({"file": each["file"], "number": each["number"]} for each in lines if "file" in each), {})
    exact = [each for each in requested if "==" in each]
    if twice := next((one for one in exact for other in exact if _names_again(one, other)), ""):
        name = twice.partition("==")[0]
        both = dict.fromkeys(each for each in exact if each.partition("==")[0] == name)
        return {"twice": name, "both": " and ".join(both)}
    told = _find_refused(wishes, requested, where.get("file", "requirements.txt"), known)
    told = told or _find_pair(wishes, known) or _find_tried(wishes, lines)
    pinned = next((each["pinned"] for each in lines if "pinned" in each), "")
    if not told and where and pinned and not wishes and not requested:
        return {**where, "pinned": pinned, "held": _read_name(pinned)}
    alone = next((each["alone"] for each in lines if "alone" in each), "")
    if told or not alone or requested:
        return told
    wanted = {f"{each['wish']}{each['limit']}": each["wish"] for each in wishes}
    sole = {"sole": next(iter(wanted)), "unmet": wishes[0]["wish"]} if len(wanted) == 1 else {}
    return {"alone": alone, **sole}


def _find_refused(wishes: Sequence[Words], requested: Sequence[str], file: str, known: Mapping[str, Any]) -> Words:
    """Return which package does not take what the requirements name, and what all of them take."""
    asked = {normalize(_read_name(each)): each for each in requested}
    for each in wishes:
        named = asked.get(normalize(each["wish"]), "")
        limit = named[len(_read_name(named)) :]
        if limit and not overlap(limit, each["limit"]):
            told = {"named": named, "wisher": each["wisher"], "wanting": _tell_wish(each), "list": file}
            return {**told, **_find_common(wishes, each["wish"]), **_find_newest(wishes, each, limit, known)}
    return {}


def _find_pair(wishes: Sequence[Words], known: Mapping[str, Any]) -> Words:
    """Return two packages that exclude each other by what they want of a third one."""
    for number, each in enumerate(wishes):
        for other in wishes[number + 1 :]:
            apart = normalize(each["wisher"]) != normalize(other["wisher"])  # pip tries several releases of one package
            if apart and each["wish"] == other["wish"] and not overlap(each["limit"], other["limit"]):
                wanting = f"{_tell_wish(each)}, and {_tell_wish(other)}"
                return {"wanting": wanting, **_find_fitting(wishes, each["wish"], known), **_judge_cuda(each["wish"])}
    return {}


def _find_tried(wishes: Sequence[Words], lines: Sequence[Words]) -> Words:
    """Return the one package of which each release was tried in vain."""
    pairs, releases = {(each["wisher"], each["wish"]) for each in wishes}, {each.get("release") for each in wishes}
    listed = {each["plenty"] for each in lines if "plenty" in each} & {_read_name(wisher) for wisher, _ in pairs}
    if len(pairs) != 1 or (len(releases) == 1 and not listed):
        return {}
    tried = sorted({f"{each['wish']}{each['limit']}" for each in wishes})
    unmet = wishes[0]["wish"]
    told = {"tried": _read_name(wishes[0]["wisher"]), "attempts": " or ".join(tried), "unmet": unmet}
    return {**told, **_judge_cuda(unmet)}


def bound_python(lines: Sequence[Words], _known: Mapping[str, Any]) -> Words:
    """Return the Pythons that a project and all packages take which Poetry names."""
    project = next((each["project"] for each in lines if "project" in each), "")
    wanters = [each for each in lines if "wanter" in each]
    common = intersect([_join(project), *(each["bounds"] for each in wanters)]) if project and wanters else ""
    if not common:
        return {}
    first = wanters[0]
    return {"project": project, "wanter": first["wanter"], "bounds": first["bounds"].strip(), "common": common}


def _judge_cuda(package: str) -> Words:
    """Return whether a package is one of CUDA's libraries, of which frameworks ask for exact releases."""
    return {"of_cuda": package} if re.match(r"nvidia-\w[\w-]*-cu1\d$", package) else {}


def _read_uv(line: Words) -> Words:
    """Return the words of a line of uv's, in which a package and its version stand together, as those of pip's."""
    wanted = line.get("dependency", "") or f"{line.get('package', '')}{line.get('spec', '')}"
    if "who" not in line or "asked" not in line:
        return line
    wish, asker = _read_name(wanted), line["who"]
    exact = {"wisher": _read_name(asker), "release": asker.partition("==")[2]} if "==" in asker else {"wisher": asker}
    return {**line, **exact, "wish": wish, "limit": wanted[len(wish) :]}


def _read_limit(text: str) -> str:
    """Return the specifiers at the start of a text. Poetry writes a single version without ==."""
    limit = re.split(r" (?=[a-z])(?!and [<>=!~])", text)[0]
    return f"=={limit}" if limit[:1].isdigit() else _join(limit)


def _join(specifiers: str) -> str:
    """Return specifiers as they are written in requirements: pip lists them with "and" between."""
    return specifiers.replace(" and ", ",")


def _read_name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0]


def _find_common(wishes: Sequence[Words], package: str) -> Words:
    """Return what all packages of a list take of another one, or which two of them exclude each other."""
    first = {each["wisher"]: each for each in reversed(wishes) if each["wish"] == package}  # pip tries older ones later
    limits = [*dict.fromkeys(each["limit"] for each in first.values())]
    if common := intersect(limits):
        return {"common": f"{package}{common}"}
    pairs = ((one, other) for one in first.values() for other in first.values())
    apart = next((pair for pair in pairs if not overlap(pair[0]["limit"], pair[1]["limit"])), None)
    return {"apart": f"{_tell_wish(apart[0])}, and {_tell_wish(apart[1])}"} if apart else {}


def _find_newest(wishes: Sequence[Words], refused: Words, limit: str, known: Mapping[str, Any]) -> Words:
    """Return the newest TensorFlow that takes the release of a package that the requirements name."""
    if refused["wisher"] not in known["tensorflows"]:
        return {}
    tried = {read_minor(each.get("release", "")) for each in wishes if each["wisher"] == refused["wisher"]}
    rows = known["tensorflow"].items()
    taking = {minor: row for minor, row in rows if overlap(row.get(refused["wish"], "<0"), limit)}
    if not taking or {*taking} & tried:
        return {}
    minor, row = [*taking.items()][-1]
    return {"taking": minor, "pythons": row["python"], "newest": row["python"].rpartition(" ")[2]}


def _names_again(one: str, other: str) -> bool:
    return one != other and normalize(one.partition("==")[0]) == normalize(other.partition("==")[0])


def _find_fitting(wishes: Sequence[Words], package: str, known: Mapping[str, Any]) -> Words:
    """Return the newest TensorFlow that takes what another package wants, and its Pythons, if pip tried none such."""
    limits = {each["wisher"]: each["limit"] for each in wishes if each["wish"] == package}
    others = [(asker, limit) for asker, limit in limits.items() if asker not in known["tensorflows"]]
    if len(others) != 1 or len(others) == len(limits):
        return {}
    asker, limit = others[0]
    rows = {minor: row for minor, row in known["tensorflow"].items() if overlap(row.get(package, "<0"), limit)}
    tried = {read_minor(each.get("release", "")) for each in wishes if each["wisher"] in known["tensorflows"]}
    if not rows or {*rows} & tried:
        return {}
    minor, row = [*rows.items()][-1]
    return {"fitting": minor, "asker": asker, "pythons": row["python"], "newest": row["python"].rpartition(" ")[2]}


def find_clash(lines: Sequence[Words]) -> Words:
    """Return the request of a tree of conda with which what another one requires does not go together."""
    pins = {each["fixed"].lower(): each for each in lines if "fixed" in each}
    wisher = next((each for each in lines if "wisher" in each), {})
    clashes = [each for each in lines if each.get("clash", "").lower() in pins]
    # A tree of a package with builds for the processor names its mark (pytorch-mutex) beside what it is to have.
    plain = [each for each in clashes if not each["clash"].lower().endswith("-mutex")] or clashes
    if not plain or not wisher:
        sides = [next((each[name] for each in lines if name in each), "") for name in ("kept", "refused")]
        return dict(zip(("kept", "refused"), sides, strict=True)) if all(sides) else {}
    pin = pins[plain[0]["clash"].lower()]
    others = dict.fromkeys(each["others"].strip() for each in plain if each["clash"] == plain[0]["clash"])
    said = " or ".join(re.sub(r"(?<=\.\*)\|.*", "", each) for each in others)
    return {"fixed": pin["fixed"], "pin": pin["pin"].strip(), **wisher, "others": said}


def _tell_wish(each: Words) -> str:
    asker = f"{each['wisher']} {each.get('release', '')}".strip()
    return f"{asker} wants {each['wish']}{each['limit']}"


def list_systems(lines: Sequence[Words], known: Mapping[str, Any]) -> Words:
    """Return the packages of a conda list that are there for some systems alone, each with these."""
    told = {}
    for each in (each for each in lines if "name" in each):
        name = each["name"].rpartition("::")[2].lower()
        where = next((str(row["where"]) for row in known["conda_systems"] if re.match(row["match"], name)), "Linux")
        told[name] = where
    return {"names": ", ".join(f"{name} ({where})" for name, where in told.items())} if told else {}


def _gather(wishes: Mapping[tuple[str, str], Words], package: str, without: str = "") -> str:
    return intersect([each["spec"] for (who, name), each in wishes.items() if name == package and who != without])


def _quote(bounds: Mapping[str, str]) -> str:
    return " ".join(f"'{package}{spec}'" for package, spec in bounds.items() if spec)


def intersect(specs: Sequence[str]) -> str:
    """Return the bounds of some specifiers without those that others contain; empty if no version is within all."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import Version

    try:
        every = [*SpecifierSet(",".join(spec.strip(", ") for spec in specs))]
    except InvalidSpecifier:
        return ""
    pinned = next((str(each) for each in every if each.operator == "==" and "*" not in each.version), "")
    kept = {str(each) for each in every if each.operator[0] not in "<>"}
    for sign, choose in ((">", max), ("<", min)):
        limits = [(Version(each.version), each.operator) for each in every if each.operator[0] == sign]
        if limits:
            limit = choose(version for version, _ in limits)
            kept.add(f"{min(operator for version, operator in limits if version == limit)}{limit}")
    together = ",".join(sorted(kept))
    return (pinned or together) if overlap(together, together) else ""
