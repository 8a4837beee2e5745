"""Finds what a path or a name means, and follows what it was made from.

Each kind of artifact is a class in a module of its own, and `KINDS` is the table of them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolkit import files
from toolkit.artifacts.artifact import Artifact, Link
from toolkit.artifacts.environment import Environment
from toolkit.artifacts.image import Image
from toolkit.artifacts.run import Run
from toolkit.artifacts.smoke import SmokeReport, list_reports
from toolkit.artifacts.wheel import Wheel
from toolkit.errors import IntegrityError, UsageError
from toolkit.manifest import FILE
from toolkit.smoke import runner
from train.record import metrics, reader

__all__ = ["Artifact", "Environment", "Image", "Link", "Run", "SmokeReport", "Wheel", "compare", "find", "trace"]

KINDS: Final[Mapping[str, type[Artifact]]] = {kind.kind: kind for kind in (Wheel, Environment, Image, Run)}
"""The artifacts that are folders with a manifest, by the kind that it names."""

_MARKS: Final = {"*.whl": "wheel", reader.CHECKPOINTS: "run", metrics.CSV: "run", "venv": "environment"}
"""What only a folder of this kind holds. A forger chooses the manifest, and this is what the folder is used for."""

_REMEDY: Final = "give a folder of dist, of runs or of the state folder, a report of it, or an image as NAME:TAG"


def find(text: str, state: Path) -> Artifact:
    """Return what a path or image names.

    Raises UsageError if there is none, and IntegrityError if it is no artifact, or if it holds something else than its
    manifest says.
    """
    path = Path(text)
    if not path.exists():
        if ":" in text or "@" in text:
            return Image(folder=Path(), state=state, reference=text)
        raise UsageError(f"there is no {text}", remedy=_REMEDY)
    if path.is_file() and path.name.startswith(runner.REPORT) and path.suffix == ".json":
        return SmokeReport(folder=path.parent, state=state, report=path.name)
    folder = path.parent if path.suffix == ".whl" or path.name == FILE else path
    record = files.read_json(folder / FILE)
    recorded = record.get("kind") if isinstance(record, dict) else None
    by_content = [kind for mark, kind in _MARKS.items() if any(folder.glob(mark))]
    kind = recorded if isinstance(recorded, str) and recorded in KINDS else next(iter(by_content), None)
    if kind is None:
        raise IntegrityError(
            f"{folder} is neither a wheel's folder, an environment, an image's record nor a run",
            why=f"its {FILE} is missing, cannot be read, or is of a kind that this program does not know",
            remedy=_REMEDY,
        )
    if others := [other for other in by_content if other != kind]:
        raise IntegrityError(
            f"{folder} holds what belongs to the kind {others[0]}, and its {FILE} is of the kind {kind}",
            why=f"a record of the kind {kind} does not cover it",
            remedy="fetch or make the folder again",
        )
    return KINDS[kind](folder=folder, state=state)


def trace(artifact: Artifact) -> Link:
    """Return an artifact with the chain of what it was made from, by the records that are here. Nothing is compared."""
    root = Link(kind=artifact.kind, artifact=artifact)
    _follow(root, with_reports=not isinstance(artifact, SmokeReport))
    return root


def compare(artifact: Artifact) -> Link:
    """Return an artifact with its chain, compared with their records. Raises what :meth:`Link.compare` raises."""
    root = trace(artifact)
    root.compare()
    return root


def _follow(link: Link, *, with_reports: bool) -> None:
    if link.artifact is None:
        return
    if with_reports and isinstance(link.artifact, Environment | Image):
        link.reports = [Link(kind=report.kind, artifact=report) for report in list_reports(link.artifact)]
    link.parents = link.artifact.list_parents()
    for parent in link.parents:
        _follow(parent, with_reports=with_reports)
