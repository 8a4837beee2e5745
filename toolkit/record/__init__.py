"""Finds what a path or a name means, and verifies it against its record."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolkit import files
from toolkit.errors import IntegrityError, UsageError
from toolkit.findings import Finding
from toolkit.manifest import FILE
from toolkit.record import verify_environment, verify_run, verify_wheel
from toolkit.signing import Kind
from toolkit.smoke import runner
from train.record import metrics, reader

_RECORDED: Final[tuple[Kind, ...]] = ("wheel", "environment", "image", "run")
"""The kinds of manifests."""

_MARKS: Final[dict[str, Kind]] = {
    "*.whl": "wheel",
    reader.CHECKPOINTS: "run",
    metrics.CSV: "run",
    "venv": "environment",
}
"""What only a folder of this kind holds. A forger chooses the manifest, and this is what the folder is used for."""

_REMEDY = "give a folder of dist, of runs or of the state folder, a report of it, or an image as NAME:TAG"


@dataclass(frozen=True, kw_only=True)
class Target:
    kind: Kind  # what it is
    folder: Path  # the folder of its record; the current folder for an image that is given by reference
    reference: str = ""  # name or id of an image, or empty
    report: str = ""  # name of a report of smoke checks in the folder, or empty

    @property
    def path(self) -> Path:
        """What is signed: the folder, or the report."""
        return self.folder / self.report


def find(text: str) -> Target:
    """Return what a path or image names.

    Raises UsageError: there is none; IntegrityError: it is no artifact, or it holds something else than its manifest
    says.
    """
    path = Path(text)
    if not path.exists():
        if ":" in text or "@" in text:
            return Target(kind="image", folder=Path(), reference=text)
        raise UsageError(f"there is no {text}", remedy=_REMEDY)
    if path.is_file() and path.name.startswith(runner.REPORT) and path.suffix == ".json":
        return Target(kind="smoke", folder=path.parent, report=path.name)
    folder = path.parent if path.suffix == ".whl" or path.name == FILE else path
    value = files.read_json(folder / FILE)
    said = value.get("kind") if isinstance(value, dict) else None
    held = [kind for mark, kind in _MARKS.items() if any(folder.glob(mark))]
    kind = next((each for each in _RECORDED if each == said), next(iter(held), None))
    if kind is None:
        raise IntegrityError(
            f"{folder} is neither a wheel's folder, an environment, an image's record nor a run",
            why=f"its {FILE} is missing, cannot be read, or is of a kind that this program does not know",
            remedy=_REMEDY,
        )
    if strange := [each for each in held if each != kind]:
        raise IntegrityError(
            f"{folder} holds what belongs to the kind {strange[0]}, and its {FILE} is of the kind {kind}",
            why=f"a record of the kind {kind} does not cover it",
            remedy="fetch or make the folder again",
        )
    return Target(kind=kind, folder=folder)


def verify(target: Target, state: Path, *, signed: bool = False) -> list[Finding]:
    """Verify an artifact, and what it was made from. Raises IntegrityError: its record is damaged; EngineError.

    ``signed``: whoever is trusted has signed what the record says of it.
    """
    match target.kind:
        case "wheel":
            return verify_wheel.verify(target.folder, unread="the record of what it holds is signed" if signed else "")
        case "environment":
            return verify_environment.verify(target.folder)
        case "smoke":
            return verify_environment.verify_report(target.path)
        case "image" if target.reference:
            return verify_environment.verify_image(target.reference, state)
        case "image":
            return verify_environment.verify_image_record(target.folder)
        case "run":
            return verify_run.verify(target.folder, state)
