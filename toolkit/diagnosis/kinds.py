"""Computes the answers of kinds of failures from the words of a log, its facts, and what knowledge.yaml knows.

A kind's row in kinds.yaml has the answer for whatever is not known. A function here says more where the library, the
package or the code in the line is known: what it is, which package brings it, and whether it is too old or too new.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from toolkit.diagnosis.table import load_row

KNOWLEDGE: Final = Path(__file__).with_name("knowledge.yaml")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ANY: Final = "*"

Words = Mapping[str, str]


@dataclass(frozen=True)
class Told:
    """An answer that was computed. An empty field leaves what the row says."""

    cause: str = ""
    remedy: str = ""
    commands: tuple[str, ...] = ()


@functools.cache
def load_knowledge() -> Mapping[str, Any]:
    return yaml.load(KNOWLEDGE.read_bytes(), _Loader)  # type: ignore[no-any-return]  # noqa: S506 - a safe loader


def tell(kind: str, words: Words, facts: Words) -> Told:
    """Return what is known of a failure of a kind. ``facts``: what the log says of versions and of the machine."""
    told = _TELLERS.get(kind)
    mixed = _tell_mixture(words) if kind in _OF_MODULES else None
    return mixed or (told(words, facts) if told else None) or Told()


def name_follower(package: str, facts: Words) -> str:
    """Return the requirement of a package whose versions follow TensorFlow's; X.Y stands for one that is not named."""
    minor = _read_minor(facts.get("TensorFlow", ""))
    return f"'{package}~={minor}.0'" if minor else f"'{package}~=X.Y.0'"


def _read_minor(version: str) -> str:
    match = re.match(r"\d+\.\d+", version)
    return match[0] if match else ""


def _find(rows: list[Mapping[str, Any]], text: str) -> dict[str, str] | None:
    """Return the first row whose expression the text begins with, with the text's own numbers filled in."""
    for row in rows:
        if match := re.match(row["match"], text, re.IGNORECASE):
            numbers = {name: value for name, value in match.groupdict().items() if value}
            return {key: str(value).format(**numbers) for key, value in row.items() if key != "match"}
    return None


def _look_up(table: str, word: str, words: Words, _facts: Words) -> Told | None:
    """Return the answer of the first row of a table of knowledge.yaml whose expression a word begins with."""
    rows = (row for row in load_knowledge()[table] if re.match(row["match"], words.get(word, ""), re.IGNORECASE))
    row = next(rows, None)
    return Told(row["cause"], row["try"], tuple(row["commands"])) if row else None


def _tell_library(words: Words, _facts: Words) -> Told | None:
    library = words["library"].rpartition("/")[2]
    row = _find(load_knowledge()["libraries"], library)
    looked_for = (f"where.exe {library}",) if library.lower().endswith(".dll") else ()
    if row is None:
        cause = f"The shared library {library} is missing, or not where the loader looks for it."
        return Told(cause, commands=looked_for)
    commands = _list_installs(row)
    match row["of"]:
        case "driver":
            remedy = (
                "Install NVIDIA's driver, which has it; in a container start with --gpus all, because the host's "
                "driver brings it in. Without an NVIDIA card nothing is wrong, and TensorFlow uses the processor."
            )
            commands = ("nvidia-smi", "toolkit doctor")
        case "tensorflow":
            remedy = (
                "Install TensorFlow again in a new environment; a package with an operation of its own wants the "
                "TensorFlow for which it was built, which is to be imported first."
            )
            commands = ("pip install --force-reinstall --no-deps tensorflow", "pip check")
        case "cuda":
            remedy = (
                "`toolkit install` brings TensorFlow with libraries that belong together. Otherwise install the "
                "package of this very number, and leave LD_LIBRARY_PATH empty."
            )
            commands = ("toolkit install", *commands)
        case _:
            other = "opencv-python-headless in place of opencv-python" if "opencv" in row["what"] else ""
            where = f", or {other}." if other else ": with root in the system, without in a conda environment."
            remedy = row.get("try", f"Install the package that has it{where}")
            commands = commands or looked_for
    cause = f"The shared library {library} ({row['what']}) is missing, or not where the loader looks for it."
    return Told(cause, remedy, commands)


def _list_installs(row: Mapping[str, str]) -> tuple[str, ...]:
    forms = {
        "pip": "pip install '{}'",
        "apt": "sudo apt-get install {}",
        "rpm": "sudo dnf install {}",
        "conda": "conda install -c conda-forge '{}'",
    }
    return tuple(form.format(row[name]) for name, form in forms.items() if name in row)


def _tell_version(words: Words, _facts: Words) -> Told | None:
    wanted = words["wanted"]
    what = load_knowledge()["versioned"].get(wanted.partition("_")[0].upper())
    return Told(cause=f"A program wants {wanted} of {what}, and the one that was loaded is older.") if what else None


def _tell_symbol(words: Words, _facts: Words) -> Told | None:
    symbol = words["symbol"]
    row = _find(load_knowledge()["symbols"], symbol)
    if row is None:
        return None
    cause = (
        f"A library wants the function {symbol} of {row['what']}, and the {row['what']} that was loaded does not have "
        "it: two packages have brought different versions, or LD_LIBRARY_PATH names another one."
    )
    if row["what"] == "NVIDIA's driver":
        return Told(
            f"A library wants the function {symbol} of NVIDIA's driver, and this driver is too old to have it.",
            "Update the driver, or use a framework built for an older CUDA.",
            ("nvidia-smi", "toolkit advise"),
        )
    remedy = (
        "Unset LD_LIBRARY_PATH. If two frameworks share the environment, give each one of its own, or install builds "
        "that use the same CUDA."
    )
    commands = ("unset LD_LIBRARY_PATH", *_list_installs({key: f"{value}" for key, value in row.items()}))
    if "pip" not in row and "conda" not in row:
        remedy = "Install the two packages in versions that were built for each other, in one command."
        commands = ("pip check",)
    if "try" in row:
        remedy, commands = row["try"], ()
    return Told(cause, remedy, commands)


def _tell_conflict(words: Words, facts: Words) -> Told | None:
    package, spec, found, who = (words.get(name, "").strip() for name in ("package", "spec", "found", "who"))
    who = who or "a package"
    direction = compare(found, spec)
    if not direction:
        return None
    cause = f"{_title(who)} wants {package}{spec}; {package} {found} is installed, which is too {direction}."
    if _normalize(package) in load_knowledge()["followers"]:
        fitting = name_follower(package, facts)
        return Told(cause, f"Install the {package} of the TensorFlow that is here.", (f"pip install {fitting}",))
    if _normalize(package) in {"tensorflow", "tensorflow-cpu"}:
        remedy = f"Install the release of {who} for TensorFlow {found}; another TensorFlow may break what else is here."
        return Told(cause, remedy, (f"pip install --upgrade {who}", "pip check"))
    held = _find_wish(package, facts)
    if held and _normalize(who) != "tensorflow" and not _overlap(spec, held):
        minor = _read_minor(facts["TensorFlow"])
        remedy = (
            f"TensorFlow {minor} wants {package}{held}, so the two do not go together: use another version of {who}, "
            "or an environment for each."
        )
        return Told(cause, remedy, (f"pip install --upgrade {who}", "python -m venv other"))
    remedy = f"Install a {package} that fits, or {'a newer' if direction == 'new' else 'an older'} {who}."
    return Told(cause, remedy, (f"pip install '{package}{spec}'", "pip check"))


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


def _find_wish(package: str, facts: Words) -> str:
    """Return what the TensorFlow of the log wants of a package."""
    wishes = load_knowledge()["tensorflow"].get(_read_minor(facts.get("TensorFlow", "")), {})
    return str(wishes.get(package.replace("-", "_"), ""))


def _overlap(one: str, other: str) -> bool:
    """Return whether some version that either specifier names, or one beside it, is in both."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    both = SpecifierSet(one) & SpecifierSet(other)
    limits = {Version(each.version.removesuffix(".*")) for each in both}
    near = {Version(f"{limit}.{tail}") for limit in limits for tail in ("0", "1", "post1")}
    below = {Version(f"{limit.major}.{max(limit.minor - 1, 0)}") for limit in limits}
    return any(version in both for version in limits | near | below)


def _tell_name(words: Words, facts: Words) -> Told | None:
    module, name = words.get("module", ""), words.get("name", _ANY)
    row = next(_list_names(module, name), None)
    if row is None:
        return _guess_module(module, name)
    package = str(row["package"])
    held = _find_wish(package, facts)
    what = module if name == _ANY or row["names"] == [_ANY] else f"{module}.{name}"
    if "gone" in row:
        gone = str(row["gone"])
        until = f"to {row['back']}" if "back" in row else "and later"
        cause = f"{package} {gone} {until} have no {what}; the program was written for an older {package}."
        instead = f"It is to use {row['instead']}. " if "instead" in row else ""
        if package == "Python":
            remedy = f"{instead}Update the package whose file the traceback names, or run it by an older Python."
            return Told(cause, remedy, (f"uv venv --python {_step_below(gone)}",))
        remedy = f"{instead}Update the package whose file the traceback names, or install an older {package}"
        remedy += f"; this TensorFlow takes {package}{held}." if held else "."
        return Told(cause, remedy, (f"pip install '{package}<{gone}'", "pip check"))
    since = str(row["since"])
    cause = f"{what} is there since {package} {since}, and the installed {package} is older."
    if package == "Python":
        return Told(cause, "Run it by a newer Python, or take an older release of that package.", ())
    if held and not _overlap(f">={since}", held):
        remedy = f"This TensorFlow holds {package} back ({held}): install an older release of the package that asks."
        return Told(cause, remedy, ("pip check",))
    remedy = f"Install {package} {since} or later, where what else is installed takes it."
    return Told(cause, remedy, (f"pip install --upgrade '{package}>={since}'", "pip check"))


def _step_below(version: str) -> str:
    major, _, minor = version.partition(".")
    return f"{major}.{int(minor) - 1}"


def _list_names(module: str, name: str) -> Iterator[Mapping[str, Any]]:
    for row in load_knowledge()["names"]:
        known = str(row["module"])
        if row["names"] == [_ANY]:
            # `module.part` may be a name of a module, or a module itself.
            if module == known or module.startswith(f"{known}.") or f"{module}.{name}" == known:
                yield row
        elif (module in {known, _shorten(known)} and name in row["names"]) or module in {
            f"{known}.{each}" for each in row["names"]
        }:
            yield row


def _shorten(module: str) -> str:
    """Return the short name by which programs import a module."""
    return {"numpy": "np", "tensorflow": "tf", "pandas": "pd"}.get(module, module)


def _guess_module(module: str, name: str) -> Told | None:
    top = module.partition(".")[0]
    if name == _ANY or not top or top[0].isupper() or top in {"str", "list", "dict", "int", "float", "tuple", "set"}:
        return None
    cause = (
        f"The installed {top} has no {name} in {module}: it is older or newer than the program that uses it, or a "
        f"file or folder named {top} lies where Python looks first."
    )
    remedy = f"Compare the version of {top} with what the package in the traceback asks for, and update the older one."
    return Told(cause, remedy, (f"pip show {top}", f"python -c 'import {top}; print({top}.__file__)'", "pip check"))


def _tell_package(words: Words, facts: Words) -> Told | None:
    module = words["module"]
    if told := _tell_name({"module": module}, facts):
        return told
    top = module.partition(".")[0]
    package = load_knowledge()["modules"].get(top, top.replace("_", "-"))
    if top == module:
        install = name_follower(package, facts) if package in load_knowledge()["followers"] else package
        return Told(commands=(f"python -m pip install {install}",))
    cause = f"The installed {top} has no module {module}: it is older or newer than the program that asks for it."
    remedy = f"Compare the version of {top} with what the package in the traceback asks for, and update the older one."
    return Told(cause, remedy, (f"pip show {package}", "pip check"))


def _tell_virtual(words: Words, _facts: Words) -> Told | None:
    package = words["package"].lower()
    spec = words.get("spec", "").strip()
    wanted = re.search(r"\d+(?:\.\d+)*", spec)
    what = {
        "__glibc": "the C library (glibc)",
        "__cuda": "the CUDA of NVIDIA's driver",
        "__osx": "macOS",
        "__linux": "Linux",
        "__win": "Windows",
        "__archspec": "the processor",
        "__unix": "Unix",
    }.get(package, package)
    cause = f"The package is for machines where {what} is {spec or 'there'}, and conda finds another, or none."
    variable = f"CONDA_OVERRIDE_{package.removeprefix('__').upper()}"
    remedy = (
        f"If the environment is to run where it is so, say so in {variable}; else take an older build of the package."
    )
    value = wanted[0] if wanted else "VERSION"
    return Told(cause, remedy, (f"{variable}={value} conda install …", "conda info | grep __"))


def _tell_code(words: Words, _facts: Words) -> Told | None:
    code = words["code"].upper()
    row = load_knowledge()["codes"].get(code)
    return Told(f"{code}: {row['what']}.", row["try"], ()) if row else None


def _tell_signal(words: Words, _facts: Words) -> Told | None:
    row = load_knowledge()["signals"].get(words["signal"])
    return Told(cause=f"A process was ended by signal {words['signal']}: {row['what']}.") if row else None


def _tell_host_compiler(words: Words, _facts: Words) -> Told | None:
    cause = "The host compiler is newer than this CUDA's nvcc allows ({})."
    if below := words.get("below"):
        newest = str(int(below) - 1)
        commands = ("ls /usr/bin/clang-*", f"export NVCC_CCBIN=/usr/bin/clang++-{newest}")
        return Told(cause=cause.format(f"clang {newest}"), commands=commands)
    if newest := words.get("newest", ""):
        compilers = f"export NVCC_CCBIN=/usr/bin/g++-{newest} GCC_HOST_COMPILER_PATH=/usr/bin/gcc-{newest}"
        return Told(cause=cause.format(newest), commands=("ls /usr/bin/gcc-*", compilers))
    return None


def _tell_shapes(words: Words, _facts: Words) -> Told | None:
    if "one" not in words:
        return Told(cause="Two tensors have shapes that do not go together.")
    shapes = f"{words['one']} and {words['other']}"
    return Told(cause=f"Two tensors have shapes that do not go together: {shapes}.")


def _tell_keras(_words: Words, facts: Words) -> Told | None:
    return Told(commands=(f"pip install {name_follower('tf-keras', facts)}", "export TF_USE_LEGACY_KERAS=1"))


def _tell_wheels(words: Words, _facts: Words) -> Told | None:
    """Return of which Python or platform the wheels are, where uv says it."""
    package = words.get("package", "a package")
    if tags := re.findall(r"cp(\d)(\d+)", words.get("tags", "")):
        listed = [f"{major}.{minor}" for major, minor in tags]
        here = f"{words['here'][0]}.{words['here'][1:]}"
        cause = f"{package} has wheels for Python {', '.join(listed)}, and this is Python {here}."
        remedy = f"Make the environment with Python {listed[-1]}, or take a release of {package} for Python {here}."
        return Told(cause, remedy, (f"uv venv --python {listed[-1]}", f"uv sync --python {listed[-1]}"))
    if "platforms" not in words:
        return None
    cause = f"This release of {package} has no wheel for {words['system'].replace('`', '')}."
    remedy = (
        f"Take a release of {package} that has one (an older one, or a newer one), leave the package out on this "
        "platform by a marker, or work on one of the platforms that are listed."
    )
    if "macosx" in words["system"] and "x86_64" in words["system"]:
        remedy += " On a Mac with Apple's processor this Python is one for Intel: use one for arm64."
    return Told(cause, remedy, (f"uv add '{package}; sys_platform == \"linux\"'", "uv python list"))


def _tell_object(words: Words, _facts: Words) -> Told | None:
    instead = load_knowledge()["keras_objects"].get(words["name"])
    if instead is None:
        return None
    cause = f"Keras 3 (TensorFlow 2.16 and later) has no {words['name']}; the program was written for Keras 2."
    remedy = f"Use {instead}, update the package whose file the traceback names, or run it with Keras 2 (tf-keras)."
    return Told(cause, remedy)


def _tell_protobuf(words: Words, _facts: Words) -> Told | None:
    wanted, found = words.get("wanted", ""), words.get("found", "")
    if not wanted:
        return None
    cause = f"Generated modules were made for protobuf {wanted}, and protobuf {found} is installed"
    cause += ", which is older." if compare(found, f">={wanted}") else ", which is of a later major version."
    following = int(wanted.partition(".")[0]) + 1
    return Told(cause, commands=(f"pip install 'protobuf>={wanted},<{following}'", "pip check"))


def _tell_target(words: Words, _facts: Words) -> Told | None:
    """Return the CUDA whose PTX a card wants."""
    card, needs = words.get("card", "this card"), words.get("needs", "")
    number = re.search(r"\d+", card)
    since = load_knowledge()["cards"].get(int(number[0]), {}).get("since", "") if number else ""
    asked = f"CUDA {since} or later" if since else f"a CUDA whose PTX is {needs} or later" if needs else "a newer CUDA"
    has = f", {words['has']}," if "has" in words else ""
    cause = f"XLA writes PTX in the version of the CUDA with which it was built{has} and that does not know {card}."
    remedy = f"Use a build of the framework with {asked}; JAX has wheels for CUDA 13 (jax[cuda13])."
    if number and since and compare(since, "<=12.8") == "":
        capability = f"{number[0][:-1]}.{number[0][-1]}"
        return Told(cause, remedy, (f"toolkit build-wheel --compute-capability {capability}", "toolkit advise"))
    return Told(cause, remedy, ("toolkit advise",))


def _tell_runtime(words: Words, facts: Words) -> Told | None:
    if told := _tell_gpu_library(words, facts):
        return told
    if "number" not in words:
        return None
    major = words["number"].partition(".")[0]
    cause = (
        f"The program wants the runtime library of CUDA {major} (libcudart.so.{words['number']}), and it is not "
        "installed, or not in the library path. On a machine without an NVIDIA card this is harmless."
    )
    remedy = f"Install the libraries of CUDA {major}, or a release of the program for the CUDA that is here."
    return Told(cause, remedy, (f"pip install nvidia-cuda-runtime-cu{major}", "ldconfig -p | grep libcudart"))


def _tell_card(words: Words, facts: Words) -> Told | None:
    """Return whether a compiler of CUDA is too old for a card, or too new."""
    card = words.get("card", "")
    if card.rstrip("_") in {"sm", "compute", ""}:
        remedy = (
            "Name the compute capabilities to the build, such as -DCMAKE_CUDA_ARCHITECTURES=90 or TORCH_CUDA_ARCH_LIST."
        )
        return Told(
            "nvcc was told no compute capability: the build did not find the GPU or its setting is empty.", remedy
        )
    number = re.search(r"\d+", card)
    known = load_knowledge()["cards"].get(int(number[0]), {}) if number else {}
    since, gone = (str(known.get(name, "")) for name in ("since", "gone"))
    here = facts.get("CUDA", "")
    if since and not (gone and here and compare(here, f"<{gone}") == "new"):
        cause = f"This compiler is too old for {card}, which CUDA {since} and later know."
        remedy = f"Use CUDA {since} or later (for Triton, name its ptxas in TRITON_PTXAS_PATH), or leave {card} out."
        return Told(cause, remedy, ("which -a nvcc ptxas", "nvcc --list-gpu-arch", "toolkit advise"))
    if gone:
        cause = f"This compiler is too new for {card}: CUDA {gone} and later have no code for such cards."
        remedy = f"Leave {card} out of the compute capabilities; for a card of that age, use a CUDA before {gone}."
        return Told(cause, remedy, ("nvcc --list-gpu-arch", "nvidia-smi --query-gpu=compute_cap --format=csv"))
    return None


def _tell_handle(_words: Words, facts: Words) -> Told | None:
    """Return whether memory can be why cuDNN did not start."""
    free, whole = (int(facts.get(f"GPU bytes {name}", "0")) for name in ("free", "in all"))
    if not whole:
        return None
    if free < whole / 4:
        cause = f"cuDNN could not be set up, and only {free / whole:.0%} of the GPU's memory were free."
        return Told(cause, "Let memory grow instead of taking all of it, and end other users of the GPU.")
    cause = (
        f"cuDNN could not be set up although {free / whole:.0%} of the GPU's memory were free: another cuDNN than the "
        "one of the build was loaded, or the driver is too old for it."
    )
    remedy = "Keep one cuDNN, which the framework brings, unset LD_LIBRARY_PATH, and update the driver."
    return Told(cause, remedy, ("unset LD_LIBRARY_PATH", "pip list | grep -i cudnn", "nvidia-smi"))


def _tell_mixture(words: Words) -> Told | None:
    """Return whether a package itself asks for what it does not have, which no choice of versions explains."""
    module = f"keras.{words['part']}" if "part" in words else words.get("module", "")
    raiser = words.get("raiser", "").lower()
    top = module.partition(".")[0]
    if not top or raiser != top or module == top:
        return None
    cause = f"A file of {top} itself asks for what {module} does not have: files of two versions of {top} are mixed."
    remedy = f"Remove {top} until pip finds it no more, look whether its folder is gone, and install it again."
    return Told(cause, remedy, (f"pip uninstall -y {top}", f"pip install --no-cache-dir {top}"))


def _tell_conda(words: Words, _facts: Words) -> Told | None:
    wanted, who = words.get("wanted", "").rstrip(","), words.get("who", "")
    if not wanted:
        return None
    asks = f"{who} wants {wanted}" if who else f"{wanted} was asked for"
    return Told(f"{asks}, and no channel has it for this system and in versions that go with the rest.")


def _tell_old_version(words: Words, _facts: Words) -> Told | None:
    asked = words["asked"]
    row = load_knowledge()["tensorflow"].get(_read_minor(asked), {})
    if not words.get("package", "tensorflow").startswith("tensorflow") or "python" not in row:
        return Told(commands=(f"uv venv --python 3.X && uv pip install '{words.get('package', 'PACKAGE')}=={asked}'",))
    newest = row["python"].rpartition(" ")[2]
    cause = (
        f"TensorFlow {asked} has wheels for Python {row['python']}, and this is another Python: the oldest version "
        f"that has a wheel for it is {words['first']}."
    )
    remedy = f"Use a Python of these for {asked}, or take {words['first']} or a later version."
    return Told(cause, remedy, (f"uv venv --python {newest} && uv pip install 'tensorflow=={asked}'",))


def _tell_gpu_library(_words: Words, facts: Words) -> Told | None:
    """Return what is known of published 2.21.0, which finds no GPU in an environment that pip has filled."""
    if _read_minor(facts.get("TensorFlow", "")) != "2.21":
        return None
    row = load_row("gpu-library-path")
    cause = (
        "A library of CUDA is not found, so that TensorFlow uses no GPU. Published TensorFlow 2.21.0 does not look "
        "into the folder of cuSOLVER, so that it drops every GPU even where `pip install 'tensorflow[and-cuda]'` has "
        "installed all libraries."
    )
    return Told(cause, row.remedy, row.commands)


def _normalize(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def _title(text: str) -> str:
    return "A package" if text == "a package" else text


_OF_MODULES: Final = frozenset({"name-missing", "package-missing", "keras-internals"})
_TELLERS: Final[Mapping[str, Callable[[Words, Words], Told | None]]] = {
    "library-missing": _tell_library,
    "library-version": _tell_version,
    "program-missing": partial(_look_up, "programs", "program"),
    "header-missing": partial(_look_up, "headers", "file"),
    "slurm-refused": partial(_look_up, "refusals", "why"),
    "symbol-undefined": _tell_symbol,
    "versions-exclude": _tell_conflict,
    "name-missing": _tell_name,
    "package-missing": _tell_package,
    "conda-virtual-package": _tell_virtual,
    "conda-unsatisfiable": _tell_conda,
    "compiler-does-not-know-card": _tell_card,
    "cudnn-handle": _tell_handle,
    "gpu-code": _tell_code,
    "ended-by-signal": _tell_signal,
    "host-compiler-too-new": _tell_host_compiler,
    "shapes-differ": _tell_shapes,
    "legacy-keras-variable": _tell_keras,
    "tf-keras-missing": _tell_keras,
    "pip-version-too-old": _tell_old_version,
    "cudart-missing": _tell_runtime,
    "uv-no-wheel": _tell_wheels,
    "protobuf-runtime-older": _tell_protobuf,
    "keras-object": _tell_object,
    "xla-ptx-target": _tell_target,
    "gpu-library-missing": _tell_gpu_library,
}
