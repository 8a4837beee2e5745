"""A run's manifest, as ``train.manifest`` writes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import files
from toolkit.errors import IntegrityError, UnsupportedError
from toolkit.manifest import FILE, SCHEMA
from train.config import TrainConfig
from train.errors import TrainError

_PARTS = {"config": dict, "config_sha256": str, "result": dict, "weights_sha256": str, "environment": dict}


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a finished run says of itself.

    Attributes:
        folder: where the record lies; the rest of the run may be there or not.
        value: the manifest.
    """

    folder: Path
    value: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration, all values final."""
        return dict(self.value["config"])

    @property
    def result(self) -> Mapping[str, Any]:
        """The numbers at the end."""
        return dict(self.value["result"])

    @property
    def environment(self) -> Mapping[str, Any]:
        """What the bits depend on besides the configuration."""
        return dict(self.value["environment"])

    @property
    def resumed(self) -> tuple[int, ...]:
        """Steps after which it was interrupted and went on."""
        return tuple(self.value.get("resumed_after") or ())

    @property
    def parent(self) -> Mapping[str, Any]:
        """The environment or image that it ran in; empty where it was started without the toolkit."""
        return dict(self.value.get("parent") or {})


def find(target: Path) -> Path:
    """The run's folder that somebody means by its own name or by its manifest's."""
    return target.parent if target.name == FILE else target


def read(target: Path) -> RunRecord:
    """The record of a finished run.

    Args:
        target: the run's folder, or the manifest in it.

    Raises:
        IntegrityError: there is no manifest of a run that this program understands.
    """
    folder = find(target)
    value = files.read_json(folder / FILE)
    if not isinstance(value, dict) or (value.get("schema"), value.get("kind")) != (SCHEMA, "run"):
        raise IntegrityError(
            f"{folder} has no readable manifest of a run, of schema {SCHEMA}",
            remedy="give the folder of a finished run, as `toolkit train` leaves it",
        )
    lacking = [name for name, kind in _PARTS.items() if not isinstance(value.get(name), kind)]
    if lacking:
        raise IntegrityError(f"the manifest of {folder} lacks {', '.join(lacking)}")
    return RunRecord(folder=folder, value=value)


def digest_config(config: Mapping[str, Any]) -> str:
    """Digest of what decides a run, as this clone's training job computes it.

    Raises:
        UnsupportedError: the job does not know such a configuration.
    """
    try:
        return TrainConfig.from_dict(dict(config)).digest
    except (TypeError, ValueError, KeyError, AttributeError, TrainError) as error:
        raise UnsupportedError(
            "the training job of this clone cannot do that run",
            why=f"it does not know its configuration: {error}",
            remedy="check out the revision that the run was made with",
        ) from error
