"""Resolves the settings of one command: default < toolkit.yaml < environment ``TOOLKIT_*`` < flag."""

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from toolkit.base import files
from toolkit.base.errors import PreflightError, UnsupportedError, UsageError
from toolkit.versions.set import DECLARED, LIBRARIES, NONE, VERSIONS, Set
from train.system import addresses
from train.system.files import read_regular
from train.system.progress import Mode

EngineName = Literal["auto", "docker", "apptainer", "host"]
PlatformName = Literal["linux/amd64", "linux/arm64"]
DECIDED = "decision"
"""The source of a setting that follows from the GPUs of the machine."""

STANDARD_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")


def _default(text: str, default: str, **more: Any) -> Any:
    """Declare a setting with its help. One whose default is empty may be empty.

    ``personal``: it decides which programs run, where they come from, or who vouches for them. The file of a folder
    that a stranger made may not. ``choices``: values that it has names for. ``metavar``: the form of its value; one
    that has neither is no option of a command.
    """
    return field(default=default, metadata={"help": text, **more})


def _pinned(name: str, **declared: Any) -> Any:
    """Declare a setting whose default is in the version table."""

    def read() -> str:
        # `toolkit --help` needs no table; importing its reader would take a tenth of that command's time.
        from toolkit.versions.table import load_table

        return str(getattr(load_table().default, name))

    return field(default_factory=read, metadata=declared)


def is_contained(engine: str) -> bool:
    """Return whether an engine runs jobs in containers; empty or ``auto``: none is chosen yet."""
    return engine not in {"", "auto", "host"}


_MACHINES: Mapping[str, PlatformName] = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


def find_own_platform() -> str:
    """Return the platform of this machine, as container engines name it; it may be none of those offered."""
    machine = os.uname().machine
    return _MACHINES.get(machine, f"linux/{machine}")


@dataclass(frozen=True, kw_only=True)
class Settings(Set):
    """The versions that a command works with, chosen or asked for, and all else that it was told."""

    tensorflow: str = _pinned("tensorflow", **DECLARED["tensorflow"])
    python: str = _pinned("python", **DECLARED["python"])
    platform: PlatformName = field(
        default_factory=find_own_platform,  # type: ignore[arg-type]
        metadata={
            "help": "linux/amd64 or linux/arm64: of what is made; by default that of this machine.",
            "choices": get_args(PlatformName),
        },
    )
    card: str = _default(
        "Card to run on, such as `RTX 5090` or 12.0; auto: those of this machine, none: the processor.",
        "auto",
        metavar="auto|none|NAME",
        choices=("auto", NONE),
    )
    engine: EngineName = _default("Engine that runs the jobs.", "auto", choices=get_args(EngineName))
    archive: str = _default(
        "`docker save` of the image, for engines that cannot build images.", "", personal=True, metavar="FILE"
    )
    base_image: str = _pinned("base_image", help="Base image of all stages.", personal=True, metavar="REF")
    glibc: str = _default(
        "Oldest glibc that a built wheel runs on: 2.28; by default that of the base image.", "", metavar="X.Y"
    )
    ca_bundle: str = _default("PEM file for networks that re-sign https.", "", personal=True, metavar="FILE")
    downloads: str = _default(
        "Folder of `build-wheel --collect`, with what would be downloaded.", "", personal=True, metavar="DIR"
    )
    runs: str = _default("Folder of training runs.", "runs")
    data: str = _default("Folder of downloaded data sets.", "data")
    state: str = _default("Folder of environments, logs and manifests.", ".toolkit", personal=True)
    progress: Mode = _default("How progress is shown: auto, plain, tty or quiet.", "auto", choices=get_args(Mode))
    # for each name, ``default``, ``toolkit.yaml``, the variable's name, ``flag``, or ``decision``
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> Set:
        return Set.of(vars(self))

    @property
    def for_processor(self) -> bool:
        """Whether a wheel is to be built for processors alone."""
        return self.card == NONE and not self.cuda

    @property
    def asked(self) -> Set:
        """The versions that a flag, a variable or toolkit.yaml asks for. Defaults and decisions leave them open."""
        return Set(**{name: value for name, value in self.versions.named().items() if self.asks(name)})

    def asks(self, name: str) -> bool:
        """Return whether a setting was asked for, so that it is neither a default nor decided."""
        return self.sources.get(name, "default") not in {"default", DECIDED}

    def take(self, chosen: Set, **others: Any) -> "Settings":
        """Return the settings with the versions of a decision, and other settings that were decided."""
        values = {**{name: getattr(chosen, name) for name in VERSIONS}, **others}
        decided = [name for name, value in values.items() if getattr(self, name) != value or not self.asks(name)]
        return replace(self, **values, sources={**self.sources, **dict.fromkeys(decided, DECIDED)})

    def explain(self) -> dict[str, dict[str, str]]:
        """Return each value, and where it is from."""
        return {name: {"value": getattr(self, name), "from": self.sources[name]} for name in _NAMES}


IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?")
"""Roughly the form of an image reference (github.com/distribution/reference), to find typing errors."""

OPTIONS: Mapping[str, Field[Any]] = {item.name: item for item in fields(Settings) if item.name != "sources"}
_NAMES = tuple(OPTIONS)
SHARED = tuple(name for name, item in OPTIONS.items() if not item.metadata.get("personal"))
"""Names that ``toolkit.yaml`` may have."""


def resolve(
    flags: Mapping[str, str | None],
    *,
    fixed: Mapping[str, str] | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    partial: bool = False,
) -> Settings:
    """Merge the four layers, and then what the command itself fixes. Raises UsageError.

    ``file`` is by default the ``toolkit.yaml`` of the current folder. ``partial``: whether some of NVIDIA's libraries
    may be asked for and the others left open.
    """
    values: dict[str, str] = {}
    sources = dict.fromkeys(_NAMES, "default")
    path = file or Path("toolkit.yaml")
    layers: list[tuple[str, Mapping[str, object]]] = []
    if file is not None or path.exists():
        layers.append((path.name, _read(path)))
    layers.extend((f"TOOLKIT_{name.upper()}", {name: environment.get(f"TOOLKIT_{name.upper()}")}) for name in _NAMES)
    layers.append(("flag", flags))
    layers.append(("the command", fixed or {}))
    for source, layer in layers:
        if layer.get("cuda") == NONE:
            for name in LIBRARIES:
                values.pop(name, None)  # that of a lower layer goes with its CUDA
        for name, value in layer.items():
            if value is not None:
                values[name] = _require_text(name, value, source)
                sources[name] = source
    if values.get("cuda") == NONE:
        _take_processor(values, sources)
    if "ca_bundle" not in values:
        # Other programs read these variables on a network that intercepts https.
        variable = next((name for name in STANDARD_CA_VARIABLES if environment.get(name)), None)
        if variable:
            values["ca_bundle"], sources["ca_bundle"] = environment[variable], variable
    settings = Settings(**values, sources=sources)  # type: ignore[arg-type]
    _check(settings, partial=partial)
    return settings


def _take_processor(values: dict[str, str], sources: dict[str, str]) -> None:
    """Take ``--cuda none`` for ``--card none``, which leaves CUDA open. Raises UsageError if a GPU is asked for too."""
    free = {**{name: {""} for name in LIBRARIES[1:]}, "card": {"", "auto", NONE}}
    for name, open_ in free.items():
        if values.get(name, "") not in open_:
            raise UsageError(
                f"--cuda none is for processors, and --{name} {values[name]} is given too",
                why=f"cuda: none (from {sources['cuda']}), {name}: {values[name]} (from {sources[name]})",
                remedy="leave out one of them",
            )
    values |= {"cuda": "", "card": NONE}
    sources |= {"cuda": "default", "card": sources["cuda"]}


def _read(path: Path) -> Mapping[str, object]:
    try:
        content = files.parse_yaml(read_regular(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}", why=str(error), remedy="correct the file, or move it away") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise UsageError(f"{path} is not a mapping of names to values", remedy=f"known names: {', '.join(SHARED)}")
    for name in content:
        if name not in _NAMES:
            near = difflib.get_close_matches(str(name), SHARED, n=1)
            raise UsageError(
                f"{path} has an unknown name: {name}",
                remedy=f"did you mean {near[0]}?" if near else f"known names: {', '.join(SHARED)}",
            )
        if name not in SHARED:
            variable = f"TOOLKIT_{name.upper()}"
            raise UsageError(
                f"{path} may not set {name}",
                why="it decides which programs run or where they come from, and a folder may be a stranger's",
                remedy=f"if you trust this value, set the variable {variable}"
                + (f", or give --{name.replace('_', '-')}" if name != "state" else "")
                + ", and remove the line",
            )
    return content


def _require_text(name: str, value: object, source: str) -> str:
    if not isinstance(value, str):
        # YAML reads 3.10 as the number 3.1: a version must be quoted.
        raise UsageError(f"{name} in {source} is not text: {value!r}", remedy=f'write it in quotes: {name}: "{value}"')
    if credentials := addresses.find_credentials(value):
        raise UsageError(
            f"{name} in {source} has {credentials} in an address",
            why="it would stand in records and logs",
            remedy="leave it out: `docker login`, git's credential helper, .netrc and pip's keyring keep passwords",
        )
    if "\0" in value:
        raise UsageError(f"{name} in {source} has a NUL character in it", remedy="no name has one: leave it out")
    return value


def _check(settings: Settings, *, partial: bool) -> None:
    for name in _NAMES:
        if not getattr(settings, name) and OPTIONS[name].default != "":
            raise UsageError(
                f"{name} is empty (from {settings.sources[name]})", remedy="give it a value, or leave it out"
            )
    if not IMAGE.fullmatch(settings.base_image):
        raise UsageError(
            f"not the name of an image: {settings.base_image!r} (from {settings.sources['base_image']})",
            remedy="write it as REPOSITORY:TAG or REPOSITORY@sha256:DIGEST",
        )
    if settings.sources["platform"] != "default" and settings.platform not in get_args(PlatformName):
        raise UnsupportedError(
            f"the platform {settings.platform[:40]!r} is not supported (from {settings.sources['platform']})",
            remedy=f"one of {', '.join(get_args(PlatformName))}",
        )
    for name, choices in (("engine", get_args(EngineName)), ("progress", get_args(Mode))):
        if (value := getattr(settings, name)) not in choices:
            raise UsageError(
                f"unknown {name}: {value!r} (from {settings.sources[name]})", remedy=f"one of {', '.join(choices)}"
            )
    if not partial and 0 < len(settings.libraries.named()) < len(LIBRARIES):
        raise _explain_lone(settings)
    if settings.downloads and not Path(settings.downloads).is_dir():
        raise UsageError(
            f"--downloads: there is no folder {settings.downloads} (from {settings.sources['downloads']})",
            remedy="`toolkit build-wheel --collect` makes it where there is a network",
        )
    if settings.ca_bundle and not _is_bundle(Path(settings.ca_bundle)):
        raise UsageError(
            f"the CA bundle does not exist, or holds no certificate: {settings.ca_bundle} "
            f"(from {settings.sources['ca_bundle']})",
            remedy="give a PEM file with --ca-bundle",
        )


def require_own_platform(settings: Settings, things: str) -> None:
    """Raise PreflightError if the platform asked for is not that of this machine, which runs no other's programs."""
    here = find_own_platform()
    if settings.platform != here:
        raise PreflightError(
            f"{things} for {settings.platform} only on a machine of that platform; this one is {here}",
            why=f"platform: {settings.platform} (from {settings.sources['platform']})",
            remedy="run this there; `build-wheel --dry-run`, `advise`, `lock` and `matrix --grid` plan for it here",
        )


def _explain_lone(settings: Settings) -> UsageError:
    from toolkit.versions.rules import propose
    from toolkit.versions.table import load_table

    name, value = next(iter(settings.libraries.named().items()))
    other = next(item for item in LIBRARIES if not getattr(settings, item))
    nearest = propose(load_table(), replace(settings.versions, platform=""))
    short = f", and {value} is not a full x.y.z" if value.count(".") < 2 else ""
    return UsageError(
        f"--{name} was given without --{other}{short}",
        why=f"{name}: {value} (from {settings.sources[name]})",
        remedy=f"give both, such as {' '.join(nearest.libraries.flags())}" if nearest else "give both",
    )


def _is_bundle(path: Path) -> bool:
    try:
        return b"-----BEGIN CERTIFICATE-----" in read_regular(path)
    except (OSError, ValueError):
        return False
