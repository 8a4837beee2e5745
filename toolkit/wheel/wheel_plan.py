"""Says what every plan of a wheel has, whether the wheel is built from source or grafted."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from toolkit.base import digest, files, steps
from toolkit.base.errors import IntegrityError
from toolkit.base.privacy import leave_out_places
from toolkit.base.steps import Plan, Step
from toolkit.versions.lock import Lock, rank


@dataclass(frozen=True, kw_only=True)
class WheelPlan(ABC):
    """The inputs of a wheel, and the command that makes it. Folders and registries name it by the plan's digest."""

    KIND: ClassVar[str]  # the key of the plan in plan.json
    TITLE: ClassVar[str]  # its name in messages
    REMEDY: ClassVar[str]  # the remedy if it is damaged
    BUILD_TYPE: ClassVar[str]  # what the provenance of its wheel calls the way in which it was made

    lock: Lock  # every pin
    digest: str  # content digest of everything that affects the wheel

    @property
    def name(self) -> str:
        """The name of the wheel's folder."""
        return digest.shorten(self.digest)

    @property
    def platform(self) -> str:
        return self.lock.versions.platform

    @property
    def floating(self) -> tuple[str, ...]:
        """Names of the inputs that are not pinned."""
        return self.lock.floating

    @property
    def level(self) -> str:
        """``R0`` if every input is pinned."""
        return rank(self.floating)

    @abstractmethod
    def step(self, dist: Path) -> Step:
        """Return the command that makes the wheel in ``dist/NAME``, with its inputs."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what the plan has besides digest and lock, as JSON values."""

    @classmethod
    @abstractmethod
    def restore(cls, lock: Lock, value: Mapping[str, Any]) -> Self:
        """Return the plan with this lock that :meth:`to_json` described. Raises KeyError, TypeError or ValueError."""

    def to_json(self) -> dict[str, Any]:
        return {"digest": self.digest, "lock": self.lock.describe(), **self.describe()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the plan that :meth:`to_json` described. Raises IntegrityError if the value describes no such plan."""
        try:
            lock = Lock(spec=dict(value["lock"]["spec"]), pins=dict(value["lock"]["pins"]))
            return cls.restore(lock, value)
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError(f"not {cls.TITLE}", why=repr(error)) from error

    def write(self, folder: Path, dist: Path) -> None:
        """Write ``plan.json`` into the folder of a wheel, with the step that makes the wheel in ``dist``.

        The step is for readers alone, and is published with the wheel. So it has no folders of this machine.
        """
        step = self.step(dist)
        commands = tuple(tuple(map(leave_out_places, argv)) for argv in step.commands)
        step = replace(step, commands=commands, outputs=tuple(map(leave_out_places, step.outputs)))
        value = {**Plan(steps=(step,)).to_json(), self.KIND: self.to_json()}
        files.write_json(folder / steps.FILE, value)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Return the plan in the folder of a wheel. Raises IntegrityError if it is missing or damaged."""
        value = files.read_json(folder / steps.FILE)
        if not isinstance(value, dict) or not isinstance(value.get(cls.KIND), dict):
            raise IntegrityError(f"{folder / steps.FILE} is not {cls.TITLE}", remedy=cls.REMEDY)
        return cls.from_json(value[cls.KIND])
