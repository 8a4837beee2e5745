"""Makes a grafted wheel: fetches the wheel and ptxas, assembles the PTX, writes and proves the libraries."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from toolkit.base import digest, files, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError, PreflightError
from toolkit.base.steps import Task
from toolkit.engine.local import require_space
from toolkit.graft import sources, transplant
from toolkit.graft.assembly import Assembler
from toolkit.graft.graft_plan import NVCC, GraftPlan
from toolkit.versions.settings import Settings
from toolkit.wheel import archive, build, inspection, publication, repack, wheel_folder
from toolkit.wheel.wheel_documents import BuildRun
from toolkit.wheel.wheel_folder import FinishedWheel

CACHE: Final = Path("toolkit-cache", "graft")
"""Downloads and assembled code, below the state folder."""
REPORT: Final = "graft.json"
NEEDED_BYTES: Final = 7 << 30
"""Free disk for two copies of the libraries, the wheels, and assembled code."""


def plan_task(plan: GraftPlan, settings: Settings, console: Console, *, out: Path) -> Task[FinishedWheel]:
    """Return the task that makes the wheel of a plan in ``out``."""

    def make() -> FinishedWheel:
        made = graft(plan, settings, console, dist=out)
        console.heading("wheel", f"grafted {made.wheel.name}")
        return made

    return Task(plan.step(out), make)


def graft(plan: GraftPlan, settings: Settings, console: Console, *, dist: Path, fresh: bool = False) -> FinishedWheel:
    """Make the wheel of a plan in ``dist``. ``fresh``: use no results of earlier grafts.

    Raises Build-, Check-, Integrity- or PreflightError; ``dist`` is then unchanged.
    """
    from toolkit.graft import graft_documents  # slow to load

    cache = (Path(settings.state) / CACHE).resolve()
    files.require_writable(cache)
    files.require_writable(dist)
    wheel_folder.require_free(dist / plan.name)
    seals.make_key()  # before minutes are spent
    require_space(dist, NEEDED_BYTES)
    started = time.time()
    source = fetch_wheel(plan, settings, cache, console)
    ptxas = fetch_ptxas(plan, settings, cache, console)
    # Beside the target, so that the last step is a rename.
    with files.stage(dist, plan.name) as staging, _explaining_disk(dist), ExitStack() as stack:
        work, result = staging.path / "work", staging.path / "wheel"
        for folder in (work, result):
            folder.mkdir()
        results = work / "cubins" if fresh else cache / "cubins"
        assembler = Assembler(ptxas=ptxas, digest=digest.digest_file(ptxas), cache=results)
        with console.timed("read", f"GPU code of {source.name}"):
            libraries = list(transplant.open_libraries(source, plan.ptxas, work, stack))
        outcome, replaced = transplant.transplant(plan, libraries, assembler, console, work)
        changed = work / "build_info.py"
        changed.write_text(_describe_build(source, plan))
        version = inspection.inspect(source).version
        name = source.name.replace(f"-{version}-", f"-{repack.extend_version(version, plan.local)}-")
        with console.timed("wheel", name):
            replaced[inspection.BUILD_INFO] = changed
            versions = version, repack.extend_version(version, plan.local)
            repack.repack(source, result / name, replaced, versions, requirements=plan.requires)
        console.heading("check", "reading the wheel: record, versions, GPU code")
        ran = BuildRun(
            started=started,
            finished=time.time(),
            host=build.describe_host(""),
            command=plan.step(dist).commands[0],
        )
        record = graft_documents.describe(plan, source, result / name, outcome, ran)
        files.write_json(result / REPORT, outcome.to_json())
        inputs = graft_documents.Inputs(source=source.name, original=digest.digest_file(source), ptxas=assembler.digest)
        graft_documents.write(result, plan, record, inputs, ran)
        publication.finish(result, dist / plan.name, plan, record)
    return FinishedWheel(folder=dist / plan.name, record=record, reused=False)


@contextmanager
def _explaining_disk(dist: Path) -> Iterator[None]:
    """Turn a disk that is full or refuses into a PreflightError."""
    try:
        yield
    except OSError as error:
        raise PreflightError(
            f"cannot write the wheel below {dist}",
            why=error.strerror or str(error),
            remedy="free space, or choose another folder with --out; what was assembled is kept",
        ) from error


def fetch_wheel(plan: GraftPlan, settings: Settings, cache: Path, console: Console) -> Path:
    """Return the wheel that is grafted. Raises IntegrityError if it is not the one of the plan."""
    if plan.wheel is None:
        package = sources.select(project.locate(f"docker/requirements/{plan.requirements}.txt"), "tensorflow")
        return sources.fetch(package, plan.lock.versions.python, cache, ca_bundle=settings.ca_bundle, console=console)
    if not plan.wheel.is_file() or digest.digest_file(plan.wheel) != plan.lock.pins["wheel"]:
        raise IntegrityError(f"{plan.wheel} is not the wheel of this plan", remedy="give the wheel that was grafted")
    return plan.wheel


def fetch_ptxas(plan: GraftPlan, settings: Settings, cache: Path, console: Console) -> Path:
    package = sources.select(project.locate(f"docker/requirements/{plan.compiler}.txt"), NVCC)
    python = plan.lock.versions.python
    wheel = sources.fetch(package, python, cache, ca_bundle=settings.ca_bundle, console=console)
    return sources.unpack_ptxas(wheel, cache)


def _describe_build(wheel: Path, plan: GraftPlan) -> str:
    """Return the text of build_info with the GPUs that the wheel has code for now."""
    with archive.open_wheel(wheel) as opened:
        text = opened.read_text(inspection.BUILD_INFO) or ""
    present = list(inspection.parse_build_info(text).capabilities)
    added = [f"sm_{number}" for number in plan.architectures if f"sm_{number}" not in present]
    kept = [name for name in present if plan.mode != "only" or name.startswith("compute")]
    machine, other = [name for name in kept if name.startswith("sm")], [name for name in kept if name[:2] != "sm"]
    if text.count(repr(present)) != 1:
        raise IntegrityError(f"the list of GPUs in build_info of {wheel.name} is not of the known form")
    return text.replace(repr(present), repr([*machine, *added, *other]))
