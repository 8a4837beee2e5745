"""Builds a wheel a second time, without any result of the first build, to compare the two."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from toolkit.base import digest, files, naming, project
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, CheckError, UnsupportedError
from toolkit.engine import buildx
from toolkit.versions import lock
from toolkit.versions.settings import Settings
from toolkit.wheel import bazel_output, build_inputs, repack, wheel_folder
from toolkit.wheel.build_plan import BuildPlan


@contextmanager
def building_again(
    plan: BuildPlan, dist: Path, requires: Mapping[str, str], settings: Settings, console: Console, *, bazelrc: str
) -> Iterator[Path]:
    """Build a wheel with new cache mounts, and yield the folder that has it until the end. ``dist``: where it is made.

    ``requires``: how the first wheel was changed when it was published. Raises BuildError if the build fails, and what
    :func:`require_inputs` raises.
    """
    # A new name gives empty cache mounts.
    name = f"{naming.REBUILD_CACHE}{uuid.uuid4().hex[:12]}"
    changed = change_plan(plan, ca_bundle=settings.ca_bundle, bazelrc=bazelrc, cache_id=name)
    require_inputs(changed)
    with buildx.removing_caches(name, console), files.stage(dist, changed.name) as claimed:
        build_log = Path(settings.state) / f"wheel-{changed.name}" / "rebuild.log"
        try:
            buildx.build(
                changed.command(claimed.path), log=build_log, console=console, step="rebuild", keep=[claimed.lock]
            )
        except BuildError as error:
            raise bazel_output.explain(error, [build_log]) from error
        built = wheel_folder.find_wheel(claimed.path)
        with files.writing(built):
            repack.change_requirements(built, requires)
        yield claimed.path


def require_inputs(plan: BuildPlan) -> None:
    """Raise UnsupportedError if the recipe of this clone has changed, and CheckError if the source tree has."""
    recipe = digest.digest_paths(project.ROOT, [project.locate(name) for name in lock.RECIPE])
    require_recipe(recipe, plan.lock, "Dockerfile and its scripts")
    source = plan.contexts.get("source")
    if source and "#" not in source and build_inputs.find_source(source).identity != plan.origins["source"]:
        raise CheckError(f"the source tree {source} has changed since", remedy="restore it, or build the wheel again")


def require_recipe(recipe: str, pinned: lock.Lock, noun: str) -> None:
    """Raise UnsupportedError if the recipe of this clone is not the one of a lock. ``noun``: what the recipe is."""
    if recipe != pinned.pins["recipe"]:
        raise UnsupportedError(
            "the recipe of this clone is not the one that made this wheel",
            why=f"the {noun} had the digest {pinned.pins['recipe'][:19]}…, and has {recipe[:19]}…",
            remedy="check out the revision that made it",
        )


def change_plan(plan: BuildPlan, *, ca_bundle: str = "", bazelrc: str = "", cache_id: str) -> BuildPlan:
    """Return a saved plan for a second build: with secrets, which no plan keeps, and with new cache mounts."""
    secrets = {"ca": ca_bundle, "bazelrc": bazelrc}
    # The remote services of the first build would return the same results again, even wrong ones.
    services = {"REMOTE_CACHE", "REMOTE_EXECUTOR", "REMOTE_INSTANCE_NAME"}
    arguments = {name: value for name, value in plan.arguments.items() if name not in services}
    return replace(
        plan,
        arguments={**arguments, "CACHE_ID": cache_id},
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        fresh=True,
    )
