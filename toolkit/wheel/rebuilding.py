"""A second build that uses nothing of the first, and what is different in it."""

import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from toolkit import naming
from toolkit.console import Console
from toolkit.engine import buildx
from toolkit.errors import BuildError, CheckError, UnsupportedError
from toolkit.settings import Settings
from toolkit.wheel import difference, folder, log, request, verification
from toolkit.wheel.difference import Difference
from toolkit.wheel.plan import WheelPlan

_NAMED = 4
"""Files that an error names; the others are in the list before it."""
_MEANING = {
    "R3": "the same wheel, to the byte",
    "R2": "the same files, to the byte, but for RECORD and what the archive says of them",
    "R1": "the same file list; some contents differ",
    "below R1": "another file list",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The outcome.

    Attributes:
        rung: R3 the same wheel, R2 but for a named list, R1 the same file list.
        differences: each file that differs in the wheel, and how.
        inputs: Debian packages of the build image that differ, which explain much.
        seconds: how long the second build took.
    """

    rung: difference.Rung
    differences: tuple[Difference, ...]
    inputs: tuple[str, ...]
    seconds: float

    @property
    def summary(self) -> str:
        """One line for a person."""
        changed = f"; {len(self.inputs)} Debian packages are others than then" if self.inputs else ""
        return f"{self.rung}, {_MEANING[self.rung]}{changed}"


def require_rung(comparison: Comparison, accepted: difference.Rung = "R2") -> None:
    """Refuse a second build that gave another wheel.

    Args:
        comparison: the outcome.
        accepted: the lowest rung that is good enough.

    Raises:
        CheckError: the rung is lower.
    """
    if difference.RUNGS.index(comparison.rung) >= difference.RUNGS.index(accepted):
        return
    names = [item.name or "the archive" for item in comparison.differences if not item.harmless or accepted == "R3"]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    raise CheckError(
        f"the second build gave another wheel: {comparison.summary}",
        why=f"{', '.join(names[:_NAMED])}{more}: a cache or an executor may have given a wrong result, or the "
        "build is not reproducible",
        remedy="build anew with a cache that nobody else has used (--cache NAME) and compare again; "
        "--accept R1 lets contents differ",
    )


def rebuild(path: Path, settings: Settings, *, bazelrc: str, console: Console) -> Comparison:
    """Build the wheel of a folder once more and compare.

    Raises:
        CheckError: the base image, the sources or Bazel are not what they were.
        UnsupportedError: this clone's recipe is another than the one that built it.
        BuildError: the second build failed.
    """
    record = verification.read_record(path)
    # Cache mounts of a name that nobody has used are empty.
    name = f"{naming.REBUILD_CACHE}{uuid.uuid4().hex[:12]}"
    plan = verification.recall_plan(record, ca_bundle=settings.ca_bundle, bazelrc=bazelrc, cache_id=name)
    require_inputs(plan)
    started = time.monotonic()
    with buildx.removing_caches(name, console), folder.stage(path.resolve().parent, plan.name) as place:
        build_log = Path(settings.state) / f"wheel-{plan.name}" / "rebuild.log"
        try:
            buildx.build(plan.command(place.path), log=build_log, console=console, step="rebuild", keep=[place.lock])
        except BuildError as error:
            raise log.explain(error, [build_log]) from error
        found = difference.compare(folder.find_wheel(path), folder.find_wheel(place.path))
        inputs = _read_packages(path) ^ _read_packages(place.path)
    return Comparison(
        rung=difference.rank(found),
        differences=tuple(found),
        inputs=tuple(sorted(inputs)),
        seconds=round(time.monotonic() - started, 1),
    )


def require_inputs(plan: WheelPlan) -> None:
    """Refuse to compare what was not made of the same: a difference would explain nothing.

    Raises:
        UnsupportedError: this clone's recipe is another.
        CheckError: the sources are others.
    """
    from toolkit import digest, lock, project

    recipe = digest.digest_paths(project.ROOT, [project.locate(name) for name in lock.RECIPE])
    if recipe != plan.lock.pins["recipe"]:
        raise UnsupportedError(
            "this clone builds wheels in another way than the one that built this wheel",
            why=f"the Dockerfile and its scripts were {plan.lock.pins['recipe'][:19]}…, and are {recipe[:19]}…",
            remedy="check out the revision that built it",
        )
    source = plan.contexts.get("source")
    if source and "#" not in source and request.find_source(source).identity != plan.origins["source"]:
        raise CheckError(f"the source tree {source} has changed since", remedy="restore it, or build the wheel anew")


def _read_packages(path: Path) -> set[str]:
    return set((path / "packages.txt").read_text().split())
