"""Collects what a wheel and its image are built from, for a machine without a network, and checks such a folder.

Bazel is asked which archives it wants, again and again until it wants no more, because the rules in an archive may want
others. Each archive is found by its hash, and is stored as in Bazel's repository
cache. A rule may download a file without a pinned hash. It is stored there too, by the hash of what was collected.
"""

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit.base import digest, files, naming
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, IntegrityError, PreflightError, UnsupportedError
from toolkit.base.steps import Step
from toolkit.engine import buildx
from toolkit.engine.client import connect, require_buildx
from toolkit.wheel.build_plan import BuildPlan, PlannedWheel
from train.system import network
from train.system.progress import Work, report

if TYPE_CHECKING:
    from toolkit.engine.bundle import Bundle

TARGET: Final = "wanted-downloads"
PACKAGES_TARGET: Final = "collected-packages"
UNPINNED: Final = "unpinned.json"
"""File with the SHA-256 of what is downloaded without one, by address: docker/scripts/wheelbuild/downloader.py."""

FILE: Final = "collected.json"
STORE: Final = "repository_cache/content_addressable/sha256"
SCHEMA: Final = 1
SECONDS: Final = 60
"""Longest time that a server may take to send more bytes."""

BLOCK: Final = 1 << 20
_AGAIN: Final = "run `toolkit build-wheel --collect` again with a network"


@dataclass(frozen=True, kw_only=True)
class Archive:
    sha256: str  # hex digits; empty if none is pinned and the archive is missing
    urls: tuple[str, ...]  # addresses without scheme, in Bazel's order
    origin: str = ""  # where its bytes came from; empty if it is missing
    bytes: int = 0
    pinned: bool = True  # whether Bazel's rules name the hash

    def describe(self) -> str:
        return f"{self.sha256 or '(no hash is pinned)'}  {self.urls[-1]}"


Source = Callable[[Archive, Path], str]
"""A function that writes an archive to a path, and returns its origin, or an empty text if it does not have it."""


def collect(plan: BuildPlan, folder: Path, source: Source, *, state: Path, console: Console) -> tuple[Archive, ...]:
    """Collect the archives that the build of a plan downloads; return all of them, collected or missing.

    Archives that are in the folder already are checked and kept. Raises
    BuildError if Bazel fails for another reason than a missing archive, PreflightError if the folder cannot be written
    or the disk is full, and EngineError.
    """
    require_buildx()
    files.require_writable(folder / STORE)
    before = {archive.urls: archive for archive in read(folder)}
    collected: dict[tuple[str, ...], Archive] = {}
    run = uuid.uuid4().hex
    # Bazel names only archives that it lacks. So it gets none of an earlier run: it must name all that it wants.
    with files.stage(folder, "given") as given:
        while True:
            fresh = False
            for wanted in _ask(plan, given.path, run, state=state, console=console):
                earlier = before.get(wanted.urls)
                with console.follow("collect"):
                    if wanted.pinned:
                        named = replace(wanted, origin=earlier.origin if earlier else "")
                        archive = _obtain(named, locate(folder, wanted.sha256), source, console)
                    else:
                        whole = earlier and _is_whole(locate(folder, earlier.sha256), earlier.sha256)
                        archive = earlier if earlier and whole else _obtain_unpinned(wanted, folder, source, console)
                collected[wanted.urls] = archive
                if archive.origin:
                    fresh |= _link(locate(folder, archive.sha256), locate(given.path, archive.sha256))
            _write_unpinned(given.path, collected.values())
            if not fresh:
                break
    archives = tuple(sorted(collected.values(), key=lambda archive: archive.urls[-1]))
    with files.changing(
        folder / FILE
    ):  # both files are written by one command, and the first keeps the entries of other plans
        _write_unpinned(folder, archives)
        listed = [asdict(archive) for archive in archives]
        files.write_json(folder / FILE, {"schema": SCHEMA, "plan": plan.digest, "archives": listed})
    return archives


def make_steps(planned: PlannedWheel, folder: Path, *, archives_only: bool) -> Iterator[Step]:
    """Yield the first command that asks Bazel, and those that make the images. Later calls only have more archives."""
    plan = planned.plan
    inputs = {"lock": plan.lock.digest, **plan.origins}
    command = _compose(plan, folder, "").command(folder, target=TARGET)
    yield Step(title="collect", commands=(command,), inputs=inputs, outputs=(str(folder),))
    if not archives_only:
        images = dict(_compose_images(plan).values())
        commands = (*images.values(), _compose_packages(planned, folder))
        yield Step(title="images", commands=commands, inputs=inputs, outputs=tuple(images))


def collect_images(planned: PlannedWheel, folder: Path, *, state: Path, console: Console) -> "Bundle":
    """Save the images of a build and its Python packages. Raises what :func:`toolkit.engine.bundle.write` raises."""
    from toolkit.engine import bundle

    plan = planned.plan
    replaced = plan.origins.get("bazel")
    return bundle.write(
        folder,
        commands=_compose_images(plan),
        packages=_compose_packages(planned, folder),
        lock=plan.lock.describe(),
        base=planned.images.describe_base(),
        bazel={"location": plan.contexts["bazel"], "identity": replaced} if replaced else {},
        client=connect(),
        state=state,
        log=state / f"wheel-{plan.name}" / "bundle.log",
        console=console,
    )


def _compose_images(plan: BuildPlan) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the name of the image of each stage, and the command that makes it."""
    from toolkit.engine.bundle import STAGES

    names = {stage: naming.name_image("offline", stage, plan.digest) for stage in STAGES}
    labels = {naming.OWNER_LABEL: "toolkit", naming.PLAN_LABEL: plan.digest}
    return {stage: (name, plan.image_command(stage, name, labels)) for stage, name in names.items()}


def _compose_packages(planned: PlannedWheel, folder: Path) -> tuple[str, ...]:
    """Return the command that writes the Python packages. Raises UnsupportedError if the image's set is not locked."""
    from toolkit.engine.bundle import PACKAGES

    spec = planned.spec
    if not spec.requirements:
        raise UnsupportedError(
            f"no locked set holds {spec.describe()}",
            why="the Python packages of the image are those of such a set",
            remedy="`toolkit lock` with these versions makes it; --archives-only leaves the image out",
        )
    arguments = {**planned.plan.arguments, "REQUIREMENTS": spec.requirements}
    return replace(planned.plan, arguments=arguments).command(folder / PACKAGES, target=PACKAGES_TARGET)


def _compose(plan: BuildPlan, given: Path, run: str) -> BuildPlan:
    arguments = {name: value for name, value in plan.arguments.items() if not name.startswith("REMOTE_")}
    contexts = {**plan.contexts, "downloads": str(given)}
    return replace(plan, arguments={**arguments, "RUN_ID": run}, contexts=contexts)


def locate(folder: Path, sha256: str) -> Path:
    return folder / STORE / sha256 / "file"


def read(folder: Path) -> list[Archive]:
    """Return the archives that a folder lists; none if it has no list. Raises IntegrityError if the list is damaged."""
    if not (folder / FILE).exists():
        return []
    value: Any = files.read_json(folder / FILE)
    try:
        return [Archive(**{**row, "urls": tuple(row["urls"])}) for row in value["archives"]]
    except (KeyError, TypeError) as error:
        raise IntegrityError(f"{folder / FILE} is damaged", why=repr(error), remedy="collect again") from error


def require_whole(folder: Path) -> None:
    """Check each archive of a folder, before Bazel is started.

    Raises IntegrityError if an archive does not have the hash in its name, and PreflightError if a listed one is
    missing.
    """
    for path in sorted((folder / STORE).glob("*/file")):
        if digest.hash_file(path).hex() != path.parent.name:
            raise IntegrityError(
                f"an archive in {folder} is damaged", why=f"{path} has another hash than its folder", remedy=_AGAIN
            )
    listed = read(folder)
    missing = [archive for archive in listed if not archive.sha256 or not locate(folder, archive.sha256).exists()]
    require_complete(missing)


def require_complete(missing: Sequence[Archive]) -> None:
    """Raise PreflightError, with hash and address of each, if archives are missing."""
    if missing:
        raise PreflightError(
            f"{len(missing)} archive{'s are' if len(missing) > 1 else ' is'} missing that Bazel would download",
            why="\n    ".join(["by SHA-256:", *(archive.describe() for archive in missing)]),
            remedy=f"put each into {STORE}/SHA256/file, or {_AGAIN}",
        )


def _ask(plan: BuildPlan, given: Path, run: str, *, state: Path, console: Console) -> list[Archive]:
    logs = state / f"wheel-{plan.name}"
    files.require_writable(logs)
    with files.stage(logs, "collect") as staging:
        command = _compose(plan, given, run).command(staging.path, target=TARGET)
        buildx.build(command, log=logs / "collect.log", console=console, step="collect")
        value: Any = files.read_json(staging.path / "wanted.json")
    try:
        pinned = [Archive(sha256=str(row["sha256"]), urls=tuple(row["urls"])) for row in value["wanted"]]
        return [*pinned, *(Archive(sha256="", urls=(url,), pinned=False) for url in value["unpinned"])]
    except (KeyError, TypeError) as error:
        raise BuildError("Bazel's answer cannot be read", why=repr(error), remedy=f"see {logs}/collect.log") from error


def _obtain(archive: Archive, path: Path, source: Source, console: Console) -> Archive:
    """Write an archive to the path, and return it with its origin. The origin is empty if nobody has it."""
    if _is_whole(path, archive.sha256):
        return replace(archive, origin=archive.origin or "the folder", bytes=path.stat().st_size)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial")
    if origin := source(archive, partial):
        partial.rename(path)
        console.heading("collect", f"{archive.urls[-1]}  {path.stat().st_size:,} bytes, from {origin}")
        return replace(archive, origin=origin, bytes=path.stat().st_size)
    files.require_room(path.parent)
    with contextlib.suppress(OSError):  # the folder stays if it has a partial file, which the next run completes
        path.parent.rmdir()
    console.heading("missing", archive.describe())
    return replace(archive, origin="")


def _obtain_unpinned(archive: Archive, folder: Path, source: Source, console: Console) -> Archive:
    """Store what an address has by the hash of its bytes, and return the archive with that hash."""
    with files.stage(folder, "unpinned") as staging:
        partial = staging.path / "file"
        if origin := source(archive, partial):
            sha256 = digest.hash_file(partial).hex()
            path = locate(folder, sha256)
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.rename(path)
            console.heading("collect", f"{archive.urls[-1]}  no hash is pinned: taken as it is, {sha256}")
            return replace(archive, sha256=sha256, origin=origin, bytes=path.stat().st_size)
    console.heading("missing", archive.describe())
    return archive


def _is_whole(path: Path, sha256: str) -> bool:
    return path.exists() and digest.hash_file(path).hex() == sha256


def _write_unpinned(folder: Path, archives: Iterable[Archive]) -> None:
    """Add archives without a pinned hash to the list of a folder. Those that are no longer there leave the list."""
    before: Any = files.read_json(folder / UNPINNED) or {}
    hashes = {url: sha256 for url, sha256 in before.items() if locate(folder, sha256).exists()}
    hashes |= {archive.urls[0]: archive.sha256 for archive in archives if archive.origin and not archive.pinned}
    if hashes or before:
        files.write_json(folder / UNPINNED, hashes)


def _link(path: Path, target: Path) -> bool:
    """Give an archive to Bazel, and return whether it is new there. If none is new, Bazel is not asked again."""
    if target.exists():
        return False
    target.parent.mkdir(parents=True)
    target.hardlink_to(path)
    return True


def download_by_hash(ca_bundle: str = "") -> Source:
    """Return the source that asks the addresses themselves. What an interrupted run began is continued."""
    context = ssl.create_default_context(cafile=ca_bundle or None)

    def find(archive: Archive, partial: Path) -> str:
        for url in archive.urls:
            # Bazel's answer has no scheme. A hash is trusted, whatever the way; without one Bazel itself wants https.
            for scheme in ("https", "http") if archive.pinned else ("https",):
                try:
                    sha256 = _download(f"{scheme}://{url}", partial, context)
                except (OSError, http.client.HTTPException):
                    continue
                if sha256 == archive.sha256 or not archive.pinned:
                    return f"{scheme}://{url}"
                partial.unlink()
        return ""

    return find


def _download(url: str, partial: Path, context: ssl.SSLContext) -> str:
    """Write what is at an address, or the rest of it; return the SHA-256 of all. Raises OSError, HTTPException."""
    had = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={had}-"} if had else {})  # noqa: S310 - http(s) alone
    try:
        answer = network.within(
            2 * SECONDS,
            lambda: urllib.request.urlopen(request, timeout=SECONDS, context=context),  # noqa: S310
        )
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # it is longer than what is there
            partial.unlink()
        raise
    with answer, partial.open("ab" if answer.status == http.client.PARTIAL_CONTENT else "wb") as stream:
        end = stream.tell() + int(answer.headers.get("Content-Length") or 0)
        for block in network.list_pieces(lambda: answer.read1(BLOCK), SECONDS):
            stream.write(block)
            report(Work(url.rpartition("/")[2], stream.tell(), end, "bytes"))
        if stream.tell() < end:
            raise ConnectionError(f"{url} broke off")
    return digest.hash_file(partial).hex()
