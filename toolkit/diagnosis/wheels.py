"""Says which commands the versions in a log exclude: what is there already, and what has no wheel for its Python."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from toolkit.diagnosis import cards, constraints, packages, pythons, specifiers
from toolkit.diagnosis.table import Answer

_INSTALL: Final = re.compile(
    r"(?:^|&& )(?P<settings>(?:[A-Z_]+=\S+ )*)(?:uv |\.venv/bin/|python3? -m )?pip install "
    r"(?!.*--(?:dry-run|no-deps))(?P<what>[^&]*)"
)
_BEFORE_NEW: Final = re.compile(r"|pip uninstall [^&]*|(?:python3? -m|uv) venv\b[^&]*")
"""What stands before an installation and is not needed if it goes into a new environment."""
_WANTED: Final = re.compile(
    r"(?<![\w.,=<>/-])'?(?P<name>[A-Za-z][\w.-]*)(?P<extra>\[[\w,-]*\])?(?P<spec>[<>=!~][\w.,<>=!~* ]*)?'?(?=\s|$)"
)
_OPEN: Final = re.compile(r"(?:>=?[\w.]+)?")
"""A specifier without an upper bound."""
_AGAIN: Final = re.compile(r"--(?:force-reinstall|no-cache-dir)\b")
"""How a command installs once more what is there."""
_CUDNN: Final = "nvidia-cudnn"
_FOR_CUDA: Final = re.compile(r"\b(nvidia-(?:(cudnn|nccl|cusparselt|nvshmem|cudss)|[\w-]+?))-cu12\b")
"""NVIDIA's packages for CUDA 12. Of those for CUDA 13 a few have a number in their name."""
_HASHED: Final = re.compile(r"[ *=]\*?((?:\w+_)?(?:py\d+)?h[0-9a-f]{5,}_\d+)\b")
"""The build of a package of conda."""
_JAX: Final = re.compile(r"(?<=pip install )--upgrade 'jax\[cuda\d+\]'$")
_AND_CUDA: Final = ">=2.14"
"""The releases of TensorFlow that have this extra."""
_RANGE: Final = re.compile(r"(?:[<>]=?[\w.]+,? ?)+")
_THERE: Final = (
    "The log shows {package} {version}, which is {spec} already. Either Python imports another copy of it: look which, "
    "and remove it. Or the other package of these lines is to change: take its release for {package} {version}."
)
_HELD: Final = (
    "TensorFlow {minor} wants {package}{held}, so {package}{spec} does not go with it. Run the package or program "
    "that asks for it in a new environment with a newer TensorFlow. To keep this one, install a release of that "
    "package for it."
)
_NEWEST: Final = (
    "The log shows TensorFlow {minor}, and no newer one is known here. Update the other package of these lines, or "
    "take the TensorFlow for which the program was written."
)

Facts = Mapping[str, str]
Knowledge = Mapping[str, Any]


@dataclass(frozen=True)
class Obstacle:
    """Why what a command asks for is asked for in vain."""

    package: str
    remedy: str
    anew: tuple[str, ...] = ()  # commands for a new environment, which has no such obstacle

    @property
    def commands(self) -> tuple[str, ...]:
        module = self.package.replace("-", "_")
        return (*self.anew, f"python -c 'import {module}; print({module}.__version__, {module}.__file__)'", "pip check")


def weigh(answer: Answer, facts: Facts, known: Knowledge) -> Answer | Obstacle:
    """Return an answer without the commands that the log excludes, or why none is left of those that install."""
    found = [find_obstacle(command, facts, known) for command in answer.commands]
    useful = tuple(command for command, each in zip(answer.commands, found, strict=True) if each is None)
    first = next((each for each in found if each), None)
    if first is None or any(map(_INSTALL.search, useful)):
        return replace(answer, commands=useful)
    return first


def find_obstacle(command: str, facts: Facts, known: Knowledge) -> Obstacle | None:
    """Return why a command asks in vain: the log shows its version already, or a TensorFlow that does not take it."""
    minor = specifiers.read_minor(facts.get("TensorFlow", ""))
    for install in _INSTALL.finditer(command):
        wanted = list(_WANTED.finditer(install["what"]))
        if "--force-reinstall" in install["what"]:
            continue
        newest = minor == [*known["tensorflow"]][-1] and "--upgrade" in install["what"]
        if newest and [each["name"] for each in wanted] == ["tensorflow"]:
            return Obstacle("tensorflow", _NEWEST.format(minor=minor))
        for package, spec in ((each["name"], (each["spec"] or "").strip()) for each in wanted):
            version, held = packages.find_version(package, facts), packages.find_wish(package, facts, known)
            if _RANGE.fullmatch(spec) and version and specifiers.fits(version, spec):
                return Obstacle(package, _THERE.format(package=package, version=version, spec=spec))
            if spec and held and len(wanted) == 1 and not specifiers.overlap(spec, held):
                told = _HELD.format(minor=minor, package=package, held=held, spec=spec)
                return Obstacle(package, told, (f"uv venv && uv pip install tensorflow '{package}{spec}'",))
    return None


def take_fitting_python(command: str, facts: Facts, known: Knowledge) -> str:
    """Return a command that makes an environment first if what it installs has no wheel for the log's Python."""
    python, install = specifiers.read_minor(facts.get("Python", "")), _INSTALL.search(command)
    if not python or install is None or "--python" in command or not _BEFORE_NEW.fullmatch(command[: install.start()]):
        return command
    asked = [
        pythons.list_pythons(
            each["name"],
            f"{_AND_CUDA},{each['spec'] or ''}" if each["extra"] == "[and-cuda]" else each["spec"] or "",
            known,
        )
        for each in _WANTED.finditer(install["what"])
    ]
    fitting = set.intersection(*map(set, filter(None, asked))) if any(asked) else set()
    if not fitting or python in fitting:
        return command
    # Other packages seldom have wheels for a Python that is newer than those of TensorFlow.
    usual = pythons.list_pythons("tensorflow", "", known)
    newest = max(fitting & {*usual} or fitting, key=lambda each: int(each.partition(".")[2]))
    return (
        f"uv venv --python {newest} && {install['settings']}uv pip install {install['what'].removeprefix('--upgrade ')}"
    )


def bound(command: str, facts: Facts, known: Knowledge) -> str:
    """Return a command that installs no version that breaks the TensorFlow, NumPy or cuDNN of the log."""
    return _INSTALL.sub(lambda found: _bound(found, facts, known), command)


def _bound(install: re.Match[str], facts: Facts, known: Knowledge) -> str:
    what, again = install["what"], _AGAIN.search(install["what"])
    minor = specifiers.read_minor(facts.get("TensorFlow", ""))
    renewed = not (again and minor) and any(wanted["name"] in known["tensorflows"] for wanted in _WANTED.finditer(what))

    def limit(wanted: re.Match[str]) -> str:
        name, spec = wanted["name"], (wanted["spec"] or "").strip()
        limits = "" if renewed or not _OPEN.fullmatch(spec) else _find_limits(name, spec, facts, known)
        if again and minor and name in known["tensorflows"] and not spec and not wanted["extra"]:
            limits = f"=={minor}.*"
        if name.startswith(_CUDNN):
            limits = _limit_cudnn(spec, facts)
            older = spec and limits and specifiers.fits(spec.removeprefix(">="), "<8.9")  # CUDA 12 has later ones
            name = f"{_CUDNN}-cu11" if older else name
        return f"'{name}{limits}'" if limits else wanted[0]

    return install[0].replace(what, _WANTED.sub(limit, what))


def bring_legacy_keras(commands: Sequence[str]) -> Iterator[str]:
    """Yield commands, and before the one that switches to tf-keras the one that installs it."""
    there = any(re.search(r"tf[-_]keras", each) for each in commands)
    for command in commands:
        if command.startswith("export TF_USE_LEGACY_KERAS=1") and not there:
            yield "pip install tf-keras"
        yield command


def fit_keras(command: str, facts: Facts) -> tuple[str, ...]:
    """Return a command that installs Keras again in the major version that is there, or one for each that it may be."""
    install = _INSTALL.search(command)
    wanted = [each.group("name", "spec") for each in _WANTED.finditer(install["what"])] if install else []
    keep = install is None or not _AGAIN.search(install["what"]) or "TensorFlow" in facts or "no TensorFlow" in facts
    if keep or wanted != [("keras", None)]:
        return (command,)
    start = command.rpartition("keras")[0]
    if here := specifiers.read_minor(facts.get("Keras", "")):
        return (f"{start}'keras=={here}.*'",)
    older = f"{start}'keras==2.NUMBER.*'    # with TensorFlow 2.NUMBER before 2.16"
    early = "Keras 2" in facts or specifiers.fits(facts.get("Python", ""), "<3.9")  # Keras 3 begins with Python 3.9.
    return (older,) if early else (f"{start}'keras>=3'    # with TensorFlow 2.16 or later", older)


def _find_limits(package: str, spec: str, facts: Facts, known: Knowledge) -> str:
    """Return the bounds of a package that is asked for without an upper one; empty if none is known."""
    held = packages.find_wish(package, facts, known) or packages.find_follower(package, facts, known)
    row = known["ceilings"].get(package, {})
    if not held and row:
        excluded = (
            facts.get(name) == each or specifiers.fits(facts.get(name, ""), each)
            for name, each in row["unless"].items()
        )
        held = "" if any(excluded) else f"<{row['below']}"
    if not held or (spec and not specifiers.overlap(spec, held)):
        return ""
    limits = constraints.intersect([each for each in (spec, held) if each])
    return ",".join(sorted(limits.split(","), key=lambda each: each[:1] != ">"))


def _limit_cudnn(spec: str, facts: Facts) -> str:
    """Return the bounds of one major version of cuDNN, which the specifier, the TensorFlow or a library names."""
    if "<" in spec or "=" in spec.replace(">=", ""):
        return ""
    tensorflow = specifiers.read_minor(facts.get("TensorFlow", ""))
    built = ("9" if specifiers.fits(tensorflow, ">=2.18") else "8") if tensorflow else ""
    shown = facts.get("cuDNN library", "") or facts.get("cuDNN", "")
    least = spec.removeprefix(">=") or built or (shown[0] if shown else "")
    return f">={least},<{int(least.partition('.')[0]) + 1}" if least else ""


def take_log_cuda(command: str, facts: Facts) -> str:
    """Return a command with NVIDIA's packages for the major version of CUDA that the log shows."""
    tensorflow = specifiers.read_minor(facts.get("TensorFlow", ""))
    here = ("12" if specifiers.fits(tensorflow, ">=2.15") else "11") if tensorflow else ""
    major = here or cards.read_cuda(facts).partition(".")[0] or facts.get("CUDA library", "")
    if major in {"11", "13"} and "pip install" in command:
        return _FOR_CUDA.sub(
            lambda found: f"{found[1]}{'' if major == '13' and not found[2] else f'-cu{major}'}", command
        )
    return command


def take_old_jax(command: str, facts: Facts, known: Knowledge) -> str:
    """Return a command with the last JAX for CUDA that has wheels for an old Python of the log."""
    last = known["last_jax"].get(specifiers.read_minor(facts.get("Python", "")), "")
    return _JAX.sub(last, command) if last else command


def find_absent(lines: Sequence[Facts], known: Knowledge) -> Facts:
    """Return the package that no channel has, what a tree of conda asks of it, and the newest Python for that."""
    absent = next((each["absent"].lower() for each in lines if "absent" in each), "")
    if not absent:
        return constraints.find_clash(lines)
    asked = [each["bounds"] for each in lines if each.get("absent", "").lower() == absent]
    specs = [spec for each in asked if (spec := re.sub(r"[\s*]+$|^=\*", "", each)) and re.match("[<>=!~]", spec)]
    bounds = sorted(constraints.intersect(specs).split(",") if specs else (), key=lambda each: each[:1] != ">")
    told = {"absent": absent, "needed": f"{absent}{','.join(bounds)}"}
    hashed = [found[1] for each in asked if (found := _HASHED.search(each))]
    told |= {"hashed": hashed[0]} if hashed else {}
    if absent not in known["tensorflows"]:
        return told
    listed = pythons.list_pythons("tensorflow", ",".join(bounds), known)
    return {**told, "framework": "tensorflow", **({"python": listed[-1]} if listed else {})}
