"""Decides what a graft is made of: wheel, GPUs and ptxas, each pinned, before anything is downloaded."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from toolkit.base import digest, project
from toolkit.base.errors import UnsupportedError, UsageError
from toolkit.base.steps import Step
from toolkit.checks.gpu_rules import find_coverage, parse_capability
from toolkit.doctor.advice import require_platform
from toolkit.doctor.cards import find_card
from toolkit.graft import assembly, sources
from toolkit.versions import grafts, numbers
from toolkit.versions.bounds import list_bounds, list_exact
from toolkit.versions.lock import Lock
from toolkit.versions.set import Set
from toolkit.versions.settings import Settings
from toolkit.versions.table import Locked, Table
from toolkit.wheel import inspection
from toolkit.wheel.wheel_plan import WheelPlan

Mode = Literal["keep", "only", "repair"]
"""What a graft does with the machine code that the wheel has.

keep: it stays beside the new code. only: it is removed. repair: it stays, nothing is added, and PTX that is for one GPU
alone is made general.
"""

NVCC: Final = "nvidia-cuda-nvcc"
_EXTRA: Final = "and-cuda"
_REQUIREMENT: Final = re.compile(r"([\w-]+)([<>=]\S+)")
_TENSORFLOW: Final = "tensorflow"
_RECIPE: Final = (
    "toolkit/graft",
    "toolkit/checks/nvidia.json",
    "toolkit/wheel/fatbin.py",
    "toolkit/wheel/repack.py",
)
"""The code that decides the bytes of a graft."""


@dataclass(frozen=True, kw_only=True)
class GraftRequest:
    cards: Sequence[str] = ()  # names of cards, or compute capabilities
    wheel: Path | None = None  # a file; None: the published wheel
    mode: Mode = "keep"
    exact: bool = False  # whether the extra and-cuda requires the versions of one run-time set


@dataclass(frozen=True, kw_only=True)
class GraftPlan(WheelPlan):
    KIND: ClassVar[str] = "graft"
    TITLE: ClassVar[str] = "the plan of a graft"
    REMEDY: ClassVar[str] = "graft the wheel again"
    BUILD_TYPE: ClassVar[str] = "urn:x-tensorflow-toolkit:graft:v1"

    mode: Mode
    wheel: Path | None  # a user's wheel, or None
    requirements: str  # locked set with the published wheel, or empty
    compiler: str  # locked set with ptxas

    @property
    def capabilities(self) -> tuple[str, ...]:
        return tuple(filter(None, self.lock.spec["capabilities"].split(",")))

    @property
    def architectures(self) -> tuple[int, ...]:
        return tuple(int(item.replace(".", "")) for item in self.capabilities)

    @property
    def local(self) -> str:
        """The local version: ``sm120``, ``sm100.sm120``, ``sm120.only``, ``repaired``."""
        if self.mode == "repair":
            return "repaired"
        return ".".join([*(f"sm{number}" for number in self.architectures), *(["only"] if self.mode == "only" else [])])

    @property
    def requires(self) -> Mapping[str, str]:
        """The specifiers of NVIDIA's packages in the extra ``and-cuda``."""
        return dict(_REQUIREMENT.findall(self.lock.pins[_EXTRA]))

    def summarize(self) -> str:
        source = self.wheel.name if self.wheel else f"the published wheel of TensorFlow {self.lock.versions.tensorflow}"
        if self.mode == "repair":
            return f"{self.name}: {source}, its PTX for later GPUs and its search paths"
        capabilities = ", ".join(self.capabilities)
        return f"{self.name}: {source}, compute capability {capabilities} by ptxas of CUDA {self.ptxas}"

    @property
    def ptxas(self) -> str:
        """The CUDA whose ptxas compiles. It may be newer than that of the set, which need not know the card."""
        return self.compiler.rpartition("-")[2]

    def step(self, dist: Path) -> Step:
        spec, pins = self.lock.spec, self.lock.pins
        flags = [f"--compute-capability={item}" for item in self.capabilities]
        flags += [f"--{self.mode}"] if self.mode != "keep" else []
        flags += [f"--wheel={self.wheel}"] if self.wheel else []
        flags += ["--exact"] if any(bounds.startswith("==") for bounds in self.requires.values()) else []
        versions = [f"--tensorflow={spec['tensorflow']}", f"--python={spec['python']}"]
        return Step(
            title="graft",
            commands=(("toolkit", "graft", *flags, *versions, f"--out={dist}"),),
            inputs=dict(pins),
            outputs=(str(dist / self.name),),
        )

    def describe(self) -> dict[str, Any]:
        return {
            "mode": self.mode,
            "wheel": str(self.wheel) if self.wheel else "",
            "requirements": self.requirements,
            "compiler": self.compiler,
        }

    @classmethod
    def restore(cls, lock: Lock, value: Mapping[str, Any]) -> Self:
        if value["digest"] != digest_plan(value["mode"], lock):
            raise ValueError("its digest is that of another plan")
        return cls(
            lock=lock,
            digest=value["digest"],
            mode=value["mode"],
            wheel=Path(value["wheel"]) if value["wheel"] else None,
            requirements=str(value["requirements"]),
            compiler=str(value["compiler"]),
        )


def digest_plan(mode: Mode, lock: Lock) -> str:
    return digest.digest_value({"graft": mode, "lock": lock.describe()})


def plan_graft(table: Table, settings: Settings, request: GraftRequest) -> GraftPlan:
    """Plan a graft. The newest published TensorFlow is taken, unless one was asked for.

    Raises UsageError if a name is not that of a card, or no card may be named. Raises UnsupportedError if there is no
    such published wheel, no ptxas for the card, or no PTX that the card could run. Raises IntegrityError if the user's
    wheel is damaged.
    """
    for name in request.cards or ("",):
        _require_platform(table, settings, name)
    capabilities = _read_capabilities(request)
    inspected = inspection.inspect(request.wheel) if request.wheel else None
    _require_covered(table, capabilities, inspected)
    base = _find_published(table, settings) if inspected is None else None
    built = (inspected.build.cuda if inspected else "") or table.published_code.cuda
    chosen = grafts.choose(table, _choose_base(settings, base, inspected), capabilities, built)
    compiler = table.cuda_rows[grafts.list_knowing(table, capabilities, built)[0]].parts
    nvcc = sources.select(project.locate(f"docker/requirements/{compiler}.txt"), NVCC)
    served = _list_served(table, request.mode, capabilities, inspected)
    bounds = list_bounds(table, Set(tensorflow=chosen.tensorflow, cuda=built), served)
    requires = list_exact(table, chosen) if request.exact else bounds
    pins = {
        "wheel": inspected.digest if inspected else _select(base, _TENSORFLOW).digest,
        nvcc.name: nvcc.digest,
        "options": " ".join(assembly.OPTIONS),
        "recipe": digest_recipe(),
        _EXTRA: " ".join(f"{name}{bounds}" for name, bounds in sorted(requires.items())),
    }
    lock = Lock(spec={**chosen.named(), "capabilities": ",".join(capabilities)}, pins=pins)
    return GraftPlan(
        lock=lock,
        digest=digest_plan(request.mode, lock),
        mode=request.mode,
        wheel=request.wheel.resolve() if request.wheel else None,
        requirements=base.requirements if base else "",
        compiler=compiler,
    )


def _list_served(
    table: Table, mode: Mode, capabilities: Sequence[str], inspected: inspection.Inspection | None
) -> list[str]:
    """Return the capabilities for which the new wheel will have machine code."""
    present = inspected.architectures if inspected else table.published_code.capabilities
    kept = [numbers.to_plain(item) for item in present if item.startswith("sm_") and mode != "only"]
    return [*kept, *capabilities]


def digest_recipe() -> str:
    """Return the digest of the code that decides the bytes of a graft."""
    return digest.digest_paths(project.ROOT, [project.locate(name) for name in _RECIPE])


def _select(base: Locked | None, name: str) -> sources.LockedPackage:
    if base is None:
        raise ValueError("there is no published wheel")
    return sources.select(project.locate(f"docker/requirements/{base.requirements}.txt"), name)


def _require_platform(table: Table, settings: Settings, card: str) -> None:
    """Raise UnsupportedError if published wheels have no GPU code for the platform of a card."""
    place = require_platform(card, settings) if card else settings.platform
    named = f"`toolkit advise --gpu {card!r}` names the command" if card else "see `toolkit advise`"
    table.require_gpu_code(place, "no wheel can be grafted", f"build one: {named}")


def _read_capabilities(request: GraftRequest) -> tuple[str, ...]:
    if request.mode == "repair":
        if request.cards:
            raise UsageError("--repair is for no card in particular", remedy="leave out --gpu and --compute-capability")
        return ()
    if not request.cards:
        raise UsageError("no card is named", remedy='name one: --gpu "RTX 5090", or --compute-capability 12.0')
    capabilities = {find_card(card).capability for card in request.cards}
    for capability in capabilities:
        parsed = parse_capability(capability)
        if parsed is None or parsed.suffix:
            raise UsageError(f"not a compute capability: {capability!r}", remedy="write it as 12.0")
    return tuple(numbers.sort(capabilities))


def _require_covered(table: Table, capabilities: Sequence[str], inspected: inspection.Inspection | None) -> None:
    """Raise UnsupportedError if a card is older than the PTX, from which no machine code for it can be made."""
    architectures = inspected.architectures if inspected else table.published_code.capabilities
    ptx = [name for name in architectures if name.startswith("compute_")]
    oldest = min((numbers.parse(_name_number(name)) for name in ptx), default=None)
    for item in capabilities:
        if oldest is None or numbers.parse(item) < oldest:
            native = find_coverage([name for name in architectures if name.startswith("sm_")], item)
            raise UnsupportedError(
                f"no machine code for compute capability {item} can be made from this wheel",
                why=f"its PTX is of {', '.join(ptx) or 'no GPU'}",
                remedy=f"it is not needed: the wheel has {native}" if native else "build one: toolkit build-wheel",
            )


def _name_number(name: str) -> str:
    parsed = parse_capability(name)
    return f"{parsed.major}.{parsed.minor}" if parsed else "0"


def _find_published(table: Table, settings: Settings) -> Locked:
    newest = settings.sources.get("tensorflow", "default") == "default"
    usable = [locked for locked in table.published if locked.cuda and settings.python in locked.python]
    fitting = [locked for locked in usable if newest or locked.tensorflow == settings.tensorflow]
    if fitting:
        return fitting[-1]
    versions = dict.fromkeys(locked.tensorflow for locked in usable)
    raise UnsupportedError(
        f"no locked set has the published wheel of TensorFlow {settings.tensorflow} for Python {settings.python}",
        why=f"they have {', '.join(versions) or 'none for this Python'}",
        remedy="choose one of these, or give the file: --wheel",
    )


def _choose_base(settings: Settings, base: Locked | None, inspected: inspection.Inspection | None) -> Set:
    if inspected is None:
        return Set(tensorflow=base.tensorflow if base else "", python=settings.python)
    return Set(tensorflow=inspected.public_version, python=(*inspected.python_versions, settings.python)[0])
