"""What it is that somebody wants verified, told by what lies there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolkit import files
from toolkit.errors import IntegrityError, UsageError
from toolkit.findings import Finding
from toolkit.manifest import FILE

Kind = Literal["wheel", "environment", "image", "run"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something to verify.

    Attributes:
        kind: what it is.
        folder: where its record lies; for an image that is named by its reference, the current folder.
        reference: name or id of an image, or empty.
    """

    kind: Kind
    folder: Path
    reference: str = ""


def find(text: str) -> Target:
    """Tell a wheel, an environment, an image and a run from each other.

    Raises:
        UsageError: nothing of that name is here.
        IntegrityError: a folder is there, but nothing in it says what it is.
    """
    path = Path(text)
    if not path.exists():
        if ":" in text or "@" in text:
            return Target(kind="image", folder=Path(), reference=text)
        raise UsageError(
            f"there is no {text}",
            remedy="give a folder of dist, of runs or of the state folder, or an image as NAME:TAG",
        )
    folder = path.parent if path.suffix == ".whl" or path.name == FILE else path
    value = files.read_json(folder / FILE)
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind in {"environment", "image", "run"}:
        return Target(kind=kind, folder=folder)
    if kind is None and (folder / "checkpoints").is_dir():
        return Target(kind="run", folder=folder)
    if kind == "wheel" or path.suffix == ".whl" or any(folder.glob("*.whl")):
        return Target(kind="wheel", folder=folder)
    raise IntegrityError(
        f"{folder} is neither a wheel's folder, an environment, an image's record nor a run",
        why=f"its {FILE} is missing, cannot be read, or is of a kind that this program does not know",
        remedy="give a folder of dist, of runs or of the state folder, or an image as NAME:TAG",
    )


def verify(target: Target, state: Path) -> list[Finding]:
    """Look at everything again.

    Args:
        target: what.
        state: the folder of environments, images' records and logs.

    Raises:
        IntegrityError: the record cannot be trusted at all.
        EngineError: an image is meant and no engine answers.
    """
    match target.kind:
        case "wheel":
            from toolkit.wheel import verification

            return verification.verify(target.folder)
        case "environment":
            from toolkit.audit import environment

            return environment.verify(target.folder)
        case "image":
            from toolkit.audit import image

            if target.reference:
                return image.verify_reference(target.reference, state)
            return image.verify_folder(target.folder)
        case "run":
            from toolkit.audit import run

            return run.verify(target.folder, state)
