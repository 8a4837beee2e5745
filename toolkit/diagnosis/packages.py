"""Computes what the versions of packages say of a failure: too old or too new, and which release belongs to which."""

import re
from collections.abc import Mapping
from typing import Any, Final

from toolkit.diagnosis.specifiers import compare, fits, overlap, read_minor

_LIBRARIES: Final = {
    "CUDA": "cuda-runtime",
    "cuDNN": "cudnn",
    "cuFFT": "cufft",
    "cuSOLVER": "cusolver",
    "cuSPARSE": "cusparse",
}
"""Packages of the libraries whose numbers are read."""
_FACTS: Final = {"tensorflow": "TensorFlow", "numpy": "NumPy", "keras": "Keras", "python": "Python"}
"""Facts whose name is not that of the package."""

Words = Mapping[str, str]
Knowledge = Mapping[str, Any]


def normalize(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def find_distribution(module: str, known: Knowledge) -> str:
    """Return the package of the index that brings a module, by the name of the module if it is not known."""
    parts = module.split(".")
    starts = [".".join(parts[:length]).lower() for length in range(len(parts), 0, -1)]
    mapped = {name.lower(): package for name, package in known["modules"].items()}
    if start := next((start for start in starts if start in mapped), ""):
        return str(mapped[start])
    if shared := next((start for start in starts if start in known["shared"]), ""):
        return "-".join([*parts, "NAME"][: shared.count(".") + 2]).replace("_", "-")
    return parts[0]


def find_wish(package: str, facts: Words, known: Knowledge) -> str:
    """Return what the TensorFlow of the log wants of a package."""
    release = facts.get("TensorFlow", "")
    row, name = known["tensorflow"].get(read_minor(release), {}), package.replace("-", "_")
    return str(row.get("but", {}).get(release, row).get(name, row.get(name, "")))


def find_version(package: str, facts: Words) -> str:
    """Return the version of a package that the log shows; empty if it shows none."""
    return facts.get(_FACTS.get(package, package), "")


def find_follower(package: str, facts: Words, known: Knowledge) -> str:
    """Return the releases of a package that were compiled for the TensorFlow of the log, as a specifier."""
    minor, row = read_minor(facts.get("TensorFlow", "")), known["releases"].get(normalize(package))
    release = "" if row is None else row.get(minor, "") if row else minor
    return f"=={release}.*" if release else ""


def pair_with_torch(_words: Words, facts: Words, known: Knowledge) -> Words:
    """Return which torchvision goes with the torch of the log, with which the log's goes, and an index for both."""
    here, vision = read_minor(facts.get("torch", "")), read_minor(facts.get("torchvision", ""))
    releases = known["torch_releases"]["torchvision"]
    if here not in releases:
        return {}
    cuda = facts.get("CUDA wheels", "")
    index = f" --index-url https://download.pytorch.org/whl/cu{cuda}" if cuda else ""
    told = {"here": here, "fit": releases[here], "index": index}
    other = next((torch for torch, release in releases.items() if release == vision), here)
    return told if other == here else {**told, "vision": vision, "other": other}


def name_builder(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return the package of the file in which the traceback ends."""
    raiser = words.get("raiser", "")
    return {"builder": find_distribution(raiser, known)} if raiser and raiser != "numpy" else {}


def name_maker(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return the package of the file that calls protobuf, if that is none of the large ones."""
    callers = (words.get(name, "").lower() for name in ("raiser", "caller"))
    makers = (each for each in callers if each and each not in {"yes", "google", *known["foundations"]})
    maker = next(makers, "")
    return {"maker": find_distribution(maker, known)} if maker else {}


def choose_torch(_words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the torch of the log, its torchvision, and a build of them for CUDA that its driver takes."""
    release, named = facts.get("torch", ""), facts.get("index of PyTorch", "")
    minor, driver = read_minor(release), facts.get("driver", "")
    minor = minor if fits(minor, ">=1.11") else ""  # older ones are not in an index, but on a page of links
    vision = known["torch_releases"]["torchvision"].get(minor, "")
    pair = f"'torch=={release}' " + (f"'torchvision=={vision}.*'" if vision else "torchvision")
    build = next((each for spec, each in known["torch_builds"].items() if minor and fits(minor, spec)), "cu126")
    if driver and fits(driver, "<525"):
        newer = not minor or fits(minor, ">=2.8")
        return {"pair": "'torch<2.8' 'torchvision<0.23'" if newer else pair, "build": "cu118"}
    if "Blackwell" in facts:
        return {"pair": pair if minor and fits(minor, ">=2.7") else "torch torchvision", "build": "cu128"}
    build = named if re.match(r"cu\d+$", named) else build
    return {"pair": pair if minor else "torch torchvision", "build": build}


def require(package: str, facts: Words, known: Knowledge) -> str:
    """Return a requirement of the release of a package that belongs to the TensorFlow of the log."""
    minor, name = read_minor(facts.get("TensorFlow", "")), normalize(package)
    release = known["releases"].get(name, {minor: minor}).get(minor)
    return f"{name}~={release}.0" if release else name


def weigh(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return whether an installed package is too old or too new for another, and what is to give way."""
    package, spec, found, who = (words.get(name, "").strip() for name in ("package", "spec", "found", "who"))
    direction = compare(found, spec)
    told = {"who": who or "the package that asks", "asker": who or "A package", "package": package, "spec": spec}
    if not direction:
        return told
    replaced = (each.partition("==") for each in words.get("removed", "").split())
    before = next((version for name, _, version in replaced if normalize(name) == normalize(package)), "")
    if before and "holder" in words and normalize(words["holder"]) != normalize(who) and fits(before, spec):
        told |= {"before": before}
    told |= {"too": direction, "another": "a newer" if direction == "new" else "an older"}
    held = find_wish(package, facts, known)
    if normalize(package) in known["followers"]:
        return {**told, "follower": package, "requirement": require(package, facts, known)}
    if normalize(package) in {"tensorflow", "tensorflow-cpu"}:
        return {**told, "tensorflow": found}
    return {**told, "held": held} if held and normalize(who) != "tensorflow" and not overlap(spec, held) else told


def find_release(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return which release of a package that is made for one TensorFlow belongs to the one of the log."""
    owner = words.get("owner", "tensorflow_probability" if "found" in words else "")
    if not owner or owner in known["foundations"]:
        return {}
    package = normalize(find_distribution(owner, known))
    minor = read_minor(words.get("found", "") or facts.get("TensorFlow", ""))
    release = minor if package == "tensorflow-text" else known["releases"].get(package, {}).get(minor, "")
    told = {"package": package, "spec": words.get("spec", "").strip(), **judge_release(words, facts, known)}
    return {**told, "release": release, "minor": minor} if release else told


def read_local(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return where a build of PyTorch's packages is that a requirement names, as +cpu, and whether the log names it."""
    found = re.match(r"(torch|torchvision|torchaudio)==([\d.]+)\+(cpu|xpu|cu\d+|rocm[\d.]+)$", words.get("local", ""))
    if found is None:
        return {}
    old = known["torch_old_builds"]
    named = facts.get("index of PyTorch", "") in {found[3], old["page"].rpartition("/")[2]}
    told = {"library": found[1], "release": found[2], "index": f"https://download.pytorch.org/whl/{found[3]}"}
    on_page = compare(found[2], f">={old['until'][found[1]]}") == "old"
    told["page"] = f"-f {old['page']}" if on_page else f"--extra-index-url {told['index']}"
    return {**told, "named": "yes" if named else "no"}


def find_part(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return whether an absent package is a part of the TensorFlow that asks for it."""
    both = {normalize(words["package"]), normalize(words.get("who", ""))}
    return {"part": "yes"} if both <= {*known["tensorflows"]} else {}


def judge_release(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return the versions of a package and of the framework for which it was compiled, if these belong together."""
    package = normalize(find_distribution(words.get("owner", ""), known))
    version = read_minor(find_version(package, facts))
    for base, fact, table in (("tensorflow", "TensorFlow", "releases"), ("torch", "torch", "torch_releases")):
        minor = read_minor(facts.get(fact, ""))
        if minor and package in known[table] and version == known[table][package].get(minor, minor):
            beside = {"base": base, "base_version": facts[fact], "base_minor": minor}
            return {"package": package, "whole": find_version(package, facts), "own_minor": version, **beside}
    return {}


def judge_copy(_words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return whether TensorFlow's inner Keras is a mere copy here: since 2.6, and so in each one for Python 3.10."""
    if tensorflow := facts.get("TensorFlow", ""):
        copied = fits(tensorflow, ">=2.6")
    else:
        copied = "public Keras" in facts or fits(facts.get("Python", ""), ">=3.10")
    return {"copied": "yes"} if copied else {}


def judge_extension(words: Words, facts: Words, known: Knowledge) -> Words:
    """Return whether versions belong together, and the extension that lacks a symbol if it was compiled here.

    Else ``follower`` or ``foreign`` is the installed package that brings it: one that follows torch, or another.
    """
    told = judge_release(words, facts, known)
    path = words.get("extension", "")
    file = path.rpartition("/")[2]
    owner = words.get("owner", file.partition(".")[0] if "-packages/" in path else "")
    if owner.endswith(".egg"):
        return {**told, "compiled_here": owner.partition("-")[0]}
    if not owner and file.endswith(".so") and not file.startswith("lib"):
        return {**told, "cached" if "/torch_extensions/" in path else "compiled_here": file}
    package = normalize(find_distribution(owner, known))
    if not owner or owner in known["foundations"]:
        return told
    return {**told, "follower" if package in known["torch_releases"] else "foreign": package}


def keep_jax(_words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return the release of JAX that a log shows, if its plugin for CUDA of the same release is in the index."""
    here = facts.get("jax", "")
    return {"kept": here} if here and compare(here, ">=0.4.30") == "" else {}


def read_library(words: Words, facts: Words, _known: Knowledge) -> Words:
    """Return which library of NVIDIA JAX wants, its least release, and what pip is to install for that.

    The numbers are those that NVIDIA's headers make of a release: 8906 is 8.9.6 for cuDNN, 91002 is 9.10.2.
    """
    what, said = words.get("library") or words.get("outdated", ""), words.get("least") or words.get("built", "")
    major = facts.get("CUDA of jaxlib") or facts.get("CUDA library") or "12"
    if what not in _LIBRARIES or not said or major not in {"11", "12"}:
        return {}
    number, wide = int(said[:9]), int(said[:9]) >= 10_000 and what == "cuDNN"
    parts = [number // 10_000, number // 100 % 100] if wide else [number // 1000, number // 100 % 10]
    parts += [number % 100]
    if what == "CUDA":
        major, parts = str(number // 1000), [number // 1000, number % 1000 // 10]
    wanted = ".".join(map(str, parts))
    below = f",<{parts[0] + 1}" if what == "cuDNN" else ""
    return {"what": what, "wanted": wanted, "spec": f"nvidia-{_LIBRARIES[what]}-cu{major}>={wanted}{below}"}


def compare_protobuf(words: Words, _facts: Words, _known: Knowledge) -> Words:
    if "wanted" not in words:
        return {}
    older = compare(words["found"], f">={words['wanted']}")
    return {
        "following": str(int(words["wanted"].partition(".")[0]) + 1),
        "differs": "which is older" if older else "which is of a later major version",
    }


def read_virtual(words: Words, _facts: Words, known: Knowledge) -> Words:
    spec = words.get("spec", "").strip(" *=")
    wanted = re.search(r"\d+(?:\.\d+)*", spec)
    package = words["package"].lower()
    told = {
        "package": package,
        "spec": spec or "there",
        "variable": f"CONDA_OVERRIDE_{package.removeprefix('__').upper()}",
        "value": wanted[0] if wanted else "VERSION",
    }
    if package in {"__win", "__osx", "__linux", "__unix"}:
        return {**told, "foreign": known["virtual"][package]}
    if package != "__cuda" or spec or "found" in words:
        return told
    owner = re.match(r"(.+?)-\d[\w.]*-\w+$", words.get("asker", ""))
    return {**told, "build": words.get("asker", "the package"), **({"owner": owner[1]} if owner else {})}


def name_asker(words: Words, _facts: Words, known: Knowledge) -> Words:
    """Return the name of a conda package, without its version and build, that is none of TensorFlow's own."""
    asked = re.sub(r"-\d[^-]*-[^-]+$", "", words.get("who", ""))
    ours = {*known["tensorflows"], *known["followers"], "tensorflow-base", "keras", "cudnn", "cudatoolkit", ""}
    return {} if asked in ours else {"asked": asked}
