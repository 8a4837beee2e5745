"""Computes since or until when a package has a name or module that a program does not find."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from toolkit.diagnosis import private
from toolkit.diagnosis.packages import find_distribution, find_version, find_wish, normalize, require
from toolkit.diagnosis.specifiers import fits, overlap, step_below

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
_PLAIN: Final = re.compile(r"(?<=[.]v[12][.])internal(?=[.]|$)")
"""A part of a module between underscores, which pages take for a sign of bold type and leave out."""
_FIRST: Final = re.compile(r"tensorflow\.(?:_api\.v[12]\.)?compat\.v1")
"""The names of TensorFlow 1 in later ones."""
_OF_TENSORFLOW: Final = re.compile(r"keras\.(?:_tf_keras|api|src|engine)\b")
"""A Keras that programs reach as tensorflow.keras too."""
_HOLDER: Final = re.compile(r"\b\w[\w.]*\.(?:input|output)(?=(\.\w+))")
"""The input or output of a model, and the attribute that is asked of it."""
_CORE: Final = "tensorflow_core"
"""How a log names the modules of TensorFlow 1.15 to 2.1, and the fact that it does."""
_BEFORE_CORE_ENDED: Final = "<2.2"
_TYPES: Final = frozenset({"str", "list", "dict", "int", "float", "tuple", "set", "bytes"})

Words = Mapping[str, str]
Knowledge = Mapping[str, Any]


def date_name(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return which package a missing name or module is of, and since or until when that has it."""
    module = f"keras.{words['part']}" if "part" in words else words.get("module", words.get("imported", ""))
    name = words.get("name", _ANY)
    module = _PLAIN.sub("__internal__", module)
    name = "__internal__" if name == "internal" and module.startswith("tensorflow") else name
    hidden = private.tell(module, name, known)
    module = module.replace("tensorflow_core", "tensorflow") or words.get("within", words.get("mixed", ""))
    module = words["hollow"] if words.get("hollow") in known["shared"] else module
    if _FIRST.fullmatch(module) and name in {"contrib", "estimator", "examples"}:  # TensorFlow 1 has them, and not this
        module, hidden = "tensorflow", private.tell("tensorflow", name, known)
    top = module.partition(".")[0]
    early = _CORE in facts and fits(facts.get("TensorFlow", "2.1"), _BEFORE_CORE_ENDED)
    hides = "answered" in words and not name.startswith("_")  # others ask a package for its public names
    raiser = "" if hides else words.get("raiser", "").lower()
    if module in known["shared"] and name != _ANY:  # a folder that holds packages, and has no names of its own
        module, name = f"{module}.{name}", _ANY
    package = find_distribution(module, known).replace("_", "-")
    # Plain `keras` is no part of TensorFlow, so that TF_USE_LEGACY_KERAS does not change what it is.
    plain = top == "keras" and not _OF_TENSORFLOW.match(module)
    told = {
        **({"apart": "yes"} if plain else {}),
        **({"contrib": "yes"} if "tensorflow.contrib." in f"{module}.{name}." else {}),
        "module": module or "a package",
        "top": top,
        "package": package,
        "member": module if name == _ANY else f"{module}.{name}",
    }
    told["distribution"] = package.strip("'").partition("<")[0]
    # The compiled part of protobuf since 4.21.
    told |= {"upb": "yes"} if module.startswith("google._upb") else {}
    told["bundle"] = " ".join([told["distribution"], *known["pairs"].get(told["distribution"], ())])
    if "within" in words and top in {*known["modules"], *known["foundations"]}:
        return {**told, "emptied": top}
    own = raiser == top.lower() and normalize(find_distribution(words.get("raising", raiser), known)) == package.lower()
    if top and own and not (package == "protobuf" and "generated" in words):
        return {**told, "mixed": top, **({"lost": module} if name == _ANY and module != top else {})}
    told |= _find_family(words, top, raiser, known)
    inner = hidden.get("private", "").startswith("tensorflow_core")
    row = None if inner else next(_list_names(module, name, list_rows(known)), None)
    if row is None or _is_denied(row, facts, known, early=early):
        limit = _limit(words.get("culprit", ""), known)
        old = (
            {"early": "yes", "wanted": f">=2.2{limit}"} if early and top == "tensorflow" and "culprit" in words else {}
        )
        told |= {"internal": name} if row is None and "program" in words and re.match("_(?!_)", name) else {}
        apart = _find_submodule(words, module, name, known)
        return {**told, **hidden, **old, **apart, **({} if inner else _guess(module, name, package, facts, known))}
    package = str(row["package"])
    use = _find_use(row, module, name) or (hidden.get("public", "") if "gone" in row else "")
    held = find_wish(package, facts, known)
    told |= {
        "package": package,
        "what": _tell_lost(row, module, name),
        "instead": f"In its place use {use}. " if use else "",
        **({"follows": row["follows"]} if "follows" in row else {}),
        "takes": f"; this TensorFlow takes {package}{held}" if held else "",
    }
    told.pop("family", None)
    if "gone" in row:
        gone = str(row["gone"])
        back = str(row.get("back", ""))
        until = f"and later, before {back}," if back else "and later"
        dated = {
            **({"again": back} if package == "keras" and back.startswith("2.") else {}),
            "gone": gone,
            "until": until,
            "below": step_below(gone) if package == "Python" else "",
        }
        return {**told, **dated, **_judge_keras(row, module, use), "sought": module if name == _ANY else name}
    since = str(row["since"])
    stays = held and not overlap(f">={since}", held)
    if package == "keras" and since.startswith("2."):
        told["with_tensorflow"] = "yes"
    if early and package == "tensorflow":
        told |= {"early": "yes", "wanted": f">={since}{_limit(words.get('culprit', ''), known)}"}
    bound = f",<{row['below']}" if "below" in row else ""
    return {**told, "since": since, "spec": f">={since}{bound}", **({"held": held} if stays else {})}


def _find_submodule(words: Words, module: str, name: str, known: Knowledge) -> Words:
    """Return a module that its package does not import by itself, where it was asked for as an attribute."""
    apart = "looked" in words and name in known["submodules"].get(module, ())
    return {"submodule": f"{module}.{name}"} if apart else {}


def _find_use(row: Mapping[str, Any], module: str, name: str) -> str:
    """Return what takes the place of a name or module that a package lost."""
    part = module.rpartition(".")[2] if name == _ANY else name
    return str(row["names"].get(part, "") if isinstance(row["names"], dict) else row.get("instead", ""))


def _judge_keras(row: Mapping[str, Any], module: str, use: str) -> Words:
    """Return whether what a Keras 2 lost was never in TensorFlow, or is had again by an older TensorFlow."""
    gone = str(row["gone"])
    if row["package"] != "keras" or not fits(gone, "<3"):
        return {}
    if row.get("inner") and module.startswith("tensorflow.keras"):
        public = re.sub(r"(?<![\w.])keras\.", "tensorflow.keras.", use)
        return {"never": "yes", "below_gone": step_below(gone), "instead": f"In its place use {public}. "}
    # Until 2.3 Keras computes by itself, and from 2.5 on its number is that of TensorFlow.
    return {"paired": "yes"} if fits(gone, ">=2.5") else {"early_keras": "yes"}


def _limit(package: str, known: Knowledge) -> str:
    """Return the bound of TensorFlow below which a package that has ended has its last release."""
    newest = [*known["tensorflow"]]
    last = [*known["releases"].get(normalize(package), {})][-1:]
    return f",<{newest[newest.index(last[0]) + 1]}" if last and last[0] in newest[:-1] else ""


def date_attribute(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return what an attribute is of, and ``symbolic`` if it was asked of the input or output of a model of Keras."""
    told = date_name(words, facts, known)
    holder = _HOLDER.search(words.get("statement", "")) if words.get("module") == "list" else None
    return {**told, "symbolic": holder[0]} if holder and told.get("member", "").lower().endswith(holder[1]) else told


def find_inner(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return as ``inner`` a name of Keras' own that an object lacks, if it is not known as one that Keras 3 lost.

    Where the log shows a Keras 2, each such name is one that the code of one Keras asks of another. ``older``: the log
    shows a Python or TensorFlow for which there is no Keras 3.
    """
    name = words.get("name", "")
    early = any(facts.get(each) == "yes" for each in ("Keras 2", "private Keras", _CORE))
    if name.startswith("_") and (early or name not in known["keras_objects"]):
        return {"inner": name}
    before = any(fits(facts.get(each, ""), spec) for each, spec in (("Python", "<3.9"), ("TensorFlow", "<2.16")))
    return {"older": "yes"} if early or before else {}


def _require(package: str, facts: Words, known: Knowledge) -> str:
    """Return a requirement of what belongs to the TensorFlow of the log, or of 2.N if the log does not name it."""
    same = not facts.get("TensorFlow") and known["releases"].get(package) == {}
    return f"{package}==2.N.*" if same else require(package, facts, known)


def _list_tops(known: Knowledge) -> Iterator[str]:
    """Yield the packages of which names are known to be lost or got, as programs import them."""
    yield from (str(row["module"]).partition(".")[0] for row in list_rows(known))


def list_rows(known: Knowledge) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each module of which names are known to be lost or got; of a whole one the name is ``*``."""
    for row in known["names"]:
        shared = {key: value for key, value in row.items() if key not in {"names", "modules"}}
        for module, names in row.get("names", {}).items():
            yield {**shared, "module": module, "names": names}
        whole = row.get("modules", [])
        for module in whole:
            instead = {"instead": whole[module]} if isinstance(whole, Mapping) else {}
            yield {**shared, "module": module, "names": [_ANY], **instead}


def _is_denied(row: Mapping[str, Any], facts: Words, known: Knowledge, *, early: bool) -> bool:
    """Return whether the log shows a version that has the name, though a row says that the installed one lacks it.

    ``early``: it shows a TensorFlow of 1.15 to 2.1, whose Keras is one of 2.
    """
    if early and row["package"] in {"tensorflow", "keras"} and "gone" in row:
        return fits(str(row["gone"]), ">2.1")
    last = next((keras for spec, keras in known["last_keras"].items() if fits(facts.get("Python", ""), spec)), "")
    if last and row["package"] == "keras" and "gone" in row:
        return fits(str(row["gone"]), f">{last}")
    found = find_version(str(row["package"]), facts)
    has = [f"<{row['gone']}"] if "gone" in row else [f">={row['since']}"]
    has += [f">={row['back']}"] if "back" in row else []
    return any(fits(found, each) for each in has)


def _guess(module: str, name: str, package: str, facts: Words, known: Knowledge) -> Words:
    """Return what a name or module that no table has may be."""
    top = module.partition(".")[0]
    if (
        name == _ANY
        and module == f"{top}.{module.rpartition('.')[2]}"
        and module.rpartition(".")[2] in known["always"].get(top, ())
    ):
        return {"hollow": top}
    # Python that finds no part of a package has found the package.
    found = "." in module and top not in known["shared"] and top in {*known["foundations"], *_list_tops(known)}
    if name == _ANY and not found and {module, module.rpartition(".")[0]} & {top, *known["shared"]} - {""}:
        follower = package in known["followers"]
        required = {"follower": package, "requirement": _require(package, facts, known)} if follower else {}
        return {"whole": module, **required, **({"folder": top} if top.lower() in known["own_folders"] else {})}
    for kind, modules in (("plain", _TYPES), ("stdlib", sys.stdlib_module_names)):
        if top in modules:
            return {kind: top}
    if top and module == top and name in {"__version__", "__file__", *known["always"].get(top, ())}:
        return {"hollow": top}
    if not top or top[0].isupper():
        return {}
    trends = [trend for trend in ("shrinking", "growing") if any(fnmatchcase(module, each) for each in known[trend])]
    return {"guess": package if top in known["shared"] else top, **dict.fromkeys(trends, module)}


def _find_family(words: Words, top: str, raiser: str, known: Knowledge) -> Words:
    """Return the packages that are released together if one of them asks another for what it does not have."""
    family = next((each for each in known["families"] if _is_of(each, {top, raiser})), None)
    # Another package that asks one of them is the one that does not fit.
    if family is None or (
        "culprit" in words and top in family["modules"] and raiser not in {"jax", *family["modules"]}
    ):
        return {}
    return {"family": family["what"], "install": family["install"]}


def _is_of(family: Mapping[str, Any], modules: set[str]) -> bool:
    members = {*family["modules"]}
    return modules <= members if family.get("both") else bool(modules & members)


def _tell_lost(row: Mapping[str, Any], module: str, name: str) -> str:
    """Return what is missing: a name of a module, or the module itself if all of it is."""
    whole = row["names"] == [_ANY] and (module == row["module"] or module.startswith(f"{row['module']}."))
    return module if name == _ANY or whole else f"{module}.{name}"


def _list_names(module: str, name: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    written = module
    for other, usual in _OTHER_NAMES.items():
        if module == other or module.startswith(f"{other}."):
            module = usual + module.removeprefix(other)
    for row in rows:
        if row.get("own") and written.startswith("tensorflow."):
            continue
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
