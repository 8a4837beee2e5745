import json
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

Evidence = dict[str, Any]
"""JSON values that a check saw. Where a check fails or is skipped, ``why`` says it in one sentence."""

Result = Literal["pass", "fail", "skip"]

TENSORFLOW: Final = "tensorflow.import"
"""The check that other checks need when they use TensorFlow."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What is expected of the installation under test; an empty value expects nothing."""

    version: str = ""  # TensorFlow's version, ``2.19.0``
    capability: str = ""  # compute capability that the build and the GPU must have, ``7.5``
    cuda: str = ""  # CUDA version that it must load, ``12.6.1``
    cudnn: str = ""  # cuDNN version that it must load, ``9.5.0``
    device: str = "auto"  # ``auto`` uses a GPU if there is one, ``cpu`` hides it, ``gpu`` fails without one
    # of the processor that the wheel needs beyond AVX or in place of it, as /proc/cpuinfo names them
    instructions: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()  # checks to leave out, by id, noun or pattern


def find_remedy(failure: str, place: str = "", **words: str) -> str:
    """Return the remedy of a known failure, in a place where it may be another, and the command that explains it.

    ``words`` are repeated in it. The text is that of the table of failures, which cannot be read where the checks run.
    """
    remedies = _load_remedies()[failure]
    remedy = remedies.get(place, remedies[""])
    for name, word in words.items():
        remedy = remedy.replace(f"{{{name}}}", word)
    return f"{remedy}; {refer(failure)}"


def refer(failure: str) -> str:
    """Name the command that explains a known failure."""
    return f"see `toolkit diagnose --id {failure}`"


@cache
def _load_remedies() -> dict[str, dict[str, str]]:
    remedies: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("remedies.json").read_text())
    return remedies


class Fail(Exception):  # noqa: N818 - a verdict, not an error of the program
    def __init__(self, why: str, *, remedy: str = "", **evidence: object) -> None:
        super().__init__(why)
        self.remedy = remedy
        self.evidence: Evidence = {"why": why, **evidence}


class Skip(Exception):  # noqa: N818 - a verdict, not an error of the program
    """This machine has nothing for the check to examine, and nothing was expected."""


@dataclass(frozen=True)
class Outcome:
    id: str
    title: str
    result: Result
    evidence: Evidence
    remedy: str
    seconds: float
    timeout: float

    def as_dict(self) -> dict[str, Any]:
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


@dataclass(frozen=True)
class Check:
    id: str  # its name, ``noun.detail``; part of the public contract
    title: str  # what holds when it passes
    probe: Callable[[Expectation], Evidence]  # looks, and returns evidence or raises :class:`Fail` or :class:`Skip`
    timeout: float = 60.0  # seconds after which it counts as hung
    needs: tuple[str, ...] = ()  # ids of checks that must have passed before, in the same process
    slow: bool = False  # whether it may take longer than ``timeout`` as long as it computes or reads

    def run(self, expectation: Expectation) -> Outcome:
        start = time.monotonic()
        result: Result = "pass"
        remedy = ""
        try:
            evidence = self.probe(expectation)
        except Skip as skip:
            result, evidence = "skip", {"why": str(skip)}
        except Fail as fail:
            result, evidence, remedy = "fail", fail.evidence, fail.remedy
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the code under test may raise anything
            result = "fail"
            evidence = {
                "why": f"{type(error).__name__}: {_first_line(error)}",
                "traceback": traceback.format_exception(error)[-3:],
            }
            remedy = "the check did not expect this: the installation is broken, or the check is"
        return self.found(result, evidence, remedy=remedy, seconds=time.monotonic() - start)

    def found(self, result: Result, evidence: Evidence, *, remedy: str = "", seconds: float = 0.0) -> Outcome:
        return Outcome(self.id, self.title, result, evidence, remedy, round(seconds, 3), self.timeout)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""


def load_tensorflow() -> Any:
    return import_module("tensorflow")


def load_numpy() -> Any:
    return import_module("numpy")


def require_attribute(module: ModuleType, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name, None)
        if value is None:
            raise Fail(
                f"{module.__name__} has no {path}",
                remedy="this is no complete TensorFlow: install the wheel again, or build it again",
                module=str(getattr(module, "__file__", "?")),
            )
    return value


def find_gpus(tf: Any) -> list[Any]:
    """Return the GPUs that TensorFlow sees, each set to take memory as needed instead of all at once."""
    config = getattr(tf, "config", None)
    if config is None:
        return []
    devices: list[Any] = config.list_physical_devices("GPU")
    for device in devices:
        if not config.experimental.get_memory_growth(device):
            config.experimental.set_memory_growth(device, True)
    return devices
