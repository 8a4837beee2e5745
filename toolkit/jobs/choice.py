"""Chooses what a command runs: the set of versions, by the decision for the cards, and the wheel that serves it.

What was asked for are :class:`Wishes`. What follows is :class:`Chosen`.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.base.console import Console
from toolkit.base.errors import GpuError, ToolkitError, UsageError
from toolkit.base.project import DIST, shorten
from toolkit.engine import gpus
from toolkit.engine.gpus import hides_gpus
from toolkit.jobs.engines import choose_engine
from toolkit.versions.set import LIBRARIES, Set
from toolkit.versions.settings import Settings, find_own_platform
from toolkit.versions.table import load_table
from toolkit.wheel import wheel_folder

if TYPE_CHECKING:
    from toolkit.doctor.decision import Decision
    from toolkit.doctor.machine import Machine
    from toolkit.graft.graft_plan import GraftPlan

PUBLISHED = "pypi"
"""The value of `--wheel` for the published wheel."""


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a command was asked for."""

    settings: Settings
    wheel: str | None = None  # the value of ``--wheel``
    gpu: bool | None = None  # whether jobs get GPUs; None: if the set is for CUDA and the engine has a GPU
    elsewhere: bool = False  # whether its jobs run on other machines, whose GPUs are not known here
    driver: str = ""  # of these machines; empty if it is not known
    installs: bool = False  # whether it goes into an environment of the user's own, which outlasts today's driver
    python: str = ""  # of that environment; empty if it is to be made

    @property
    def names_card(self) -> bool:
        return self.settings.card not in {"auto", "none"}

    @property
    def names_versions(self) -> bool:
        return any(self.settings.sources.get(name, "default") != "default" for name in ("tensorflow", *LIBRARIES))

    @property
    def file(self) -> Path | None:
        """The wheel that was named. Raises UsageError if it is none."""
        return read_wheel_option(self.wheel)

    @property
    def leaves_versions(self) -> bool:
        """Whether neither versions nor a wheel, an image or downloaded packages were asked for."""
        return not (self.file or self.settings.archive or self.settings.downloads or self.names_versions)

    @property
    def asks_card(self) -> bool:
        """Whether a card decides: the one that is named, or those of this machine if that is left to it."""
        settings = self.settings
        if self.installs and (self.file or settings.card == "none"):
            return False
        if self.installs or self.names_card:
            return self.names_card or not settings.cuda
        closed = settings.card == "none" or self.gpu is False or self.elsewhere
        return self.leaves_versions and not closed and settings.platform == find_own_platform()


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a command works: where it tells what it does, whether it does it, and what it trusts."""

    console: Console
    dry_run: bool = False  # only print what would run; no image is pulled
    # raises an error if the artifact at this path with this digest must not be reused; by default all that has this
    # user's seal may be
    require_trusted: Callable[[Path, str], object] = wheel_folder.require_own


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What a command runs."""

    settings: Settings  # with the versions and the engine that were decided
    wheel: Path | None = None  # the file in place of the published wheel
    gpu: bool | None = None  # as in Wishes
    elsewhere: bool = False
    decision: "Decision | None" = None  # None: the user has decided
    missing: "GraftPlan | None" = None  # the wheel that has to be made first

    def take(self, found: "wheel_folder.FinishedWheel | GraftPlan | None") -> "Chosen":
        """Return the choice with the wheel that was found or made, or with the plan of the one that is missing."""
        if isinstance(found, wheel_folder.FinishedWheel):
            return replace(self, wheel=found.wheel.resolve(), missing=None)
        return replace(self, missing=found)

    def require_wheel(self) -> None:
        """Raise GpuError if the graft that the cards need is not made yet."""
        if self.missing is None or self.decision is None:
            return
        way = self.decision.way
        made = f"`toolkit up` makes it in minutes, as `{way.command}` does"
        if self.elsewhere:
            graft = replace(way, by_card=False).command
            made = f"`{graft}` makes it in minutes; then give this command again with --wheel dist/NAME"
        raise GpuError(
            f"{self.decision.name_devices()} needs a grafted wheel, and there is none yet",
            why=way.reason,
            remedy=f"{made}; --card none runs on the processor",
        )


def choose(wishes: Wishes, how: Manner, dist: Path = DIST) -> Chosen:
    """Return the set that fits the GPUs of this machine, or the card that is named, and the wheel that it needs.

    It prints the cards and the decision. Versions and a wheel that the user named stay as they are. If the decision is
    a graft or a build, a finished one in ``dist`` is taken. What is installed for good gets the set for the card even
    where the driver is too old for it today. What runs now takes the processor then.

    Raises GpuError if a GPU was asked for and cannot be used, UnsupportedError if what was asked for does not fit the
    card, IntegrityError if a wheel was found that may not be taken unasked, and UsageError if what is to be installed
    would have to be built first, which takes hours.
    """
    settings = wishes.settings
    if settings.card == "none" and wishes.gpu:
        raise UsageError("a GPU is asked for, and --card none asks for the processor", remedy="leave one of them out")
    if (wishes.gpu is False or settings.card == "none") and not wishes.elsewhere:
        gpus.hide()
    if not wishes.asks_card:
        return _choose_without_card(wishes)
    from toolkit.doctor.decision import decide  # not all commands decide, and they start faster without it

    machine = _read_machine(wishes)
    decision = decide(machine, _limit(wishes), card=settings.card)
    found = None
    if not wishes.file and _takes_gpu(wishes, decision.take_wheel()):
        decision, found = _find_wheel(decision, wishes, dist, how)
    way = decision.way
    if wishes.gpu and not decision.uses_gpu:
        raise GpuError(
            "a GPU was asked for, and none can be used",
            why=way.reason,
            remedy=decision.remedy or (way.command if way.kind != "cpu" else "leave out --gpu"),
        )
    _say(machine, decision, how.console, wishes)
    gpus.grant(decision.visible if _takes_gpu(wishes, decision) else "")
    if wishes.installs and way.kind == "build" and not found:
        raise UsageError(
            f"no published wheel will do for {decision.name_devices()}",
            why=f"{way.reason}; {dist} has no such wheel yet",
            remedy=f"`{way.command}`, and then this command again; --card none installs the CPU set",
        )
    chosen = _apply(decision, wishes).take(found)
    if chosen.wheel and decision.made:
        how.console.heading("wheel", f"found {shorten(chosen.wheel.parent)}")
    return chosen


def _limit(wishes: Wishes) -> Set:
    """Return the versions that were asked for, with the Python of an environment if there are locked sets for it."""
    locked = any(wishes.python in item.python for item in load_table().published)
    return wishes.settings.asked.merge(Set(python=wishes.python if locked else ""))


def _takes_gpu(wishes: Wishes, decision: "Decision") -> bool:
    return decision.way.kind != "cpu" if wishes.installs else decision.uses_gpu


def _find_wheel(
    decision: "Decision", wishes: Wishes, dist: Path, how: Manner
) -> "tuple[Decision, wheel_folder.FinishedWheel | GraftPlan | None]":
    """Return the wheel of ``dist`` that serves a decision, or the plan of the graft that has to be made.

    Raises IntegrityError if none that would serve may be taken unasked.
    """
    if decision.way.kind not in {"graft", "build"}:
        return decision, None
    from toolkit.graft import graft_plan

    settings = _settle(decision, wishes)
    python = wishes.python or settings.asked.python if wishes.installs else settings.python
    request = graft_plan.GraftRequest(cards=decision.grafted)
    planned = graft_plan.plan_graft(load_table(), settings, request) if decision.grafted else None
    need = wheel_folder.Need(
        versions=replace(decision.versions, python=python), capabilities=decision.capabilities, plan=planned
    )
    found = wheel_folder.search(need, dist, how.require_trusted)
    return (decision.take_wheel(), found) if found else (decision, planned)


def _choose_without_card(wishes: Wishes) -> Chosen:
    """Return what no card decides: the newest CPU set, or what the user has chosen.

    Without named versions, an archive decides: then it has the versions of the image in it.
    """
    settings = wishes.settings
    if wishes.installs:
        return keep(wishes)
    if settings.card == "none" and wishes.gpu is None:
        wishes = replace(wishes, gpu=False)
    if settings.archive and not wishes.names_versions:
        wishes = replace(wishes, settings=_take_archive(settings))
    elif not wishes.gpu and wishes.leaves_versions:
        from toolkit.doctor.decision import decide
        from toolkit.doctor.machine import Machine

        engine = "" if settings.engine == "auto" else settings.engine
        machine = Machine(platform=settings.platform, engine=engine, glibc=platform.libc_ver()[1])
        return _apply(decide(machine, settings.asked, card="none"), wishes)
    return keep(wishes)


def keep(wishes: Wishes) -> Chosen:
    """Return what the user has chosen."""
    return Chosen(settings=wishes.settings, wheel=wishes.file, gpu=wishes.gpu, elsewhere=wishes.elsewhere)


def _take_archive(settings: Settings) -> Settings:
    """Return the settings with the versions of the image in the archive, if they can be read."""
    from toolkit.engine import docker_archive

    try:
        held = docker_archive.read(Path(settings.archive)).versions
    except UsageError:  # the engine says so
        return settings
    return settings.take(replace(held, python=settings.python)) if held.tensorflow else settings


def _read_machine(wishes: Wishes) -> "Machine":
    """Return this machine, as its engine sees it; without its GPUs if they are hidden or not meant."""
    from toolkit.doctor.cards import find_card
    from toolkit.doctor.machine import Device, Machine
    from toolkit.doctor.reading import BRIEF_SECONDS, read_machine

    settings = replace(wishes.settings, engine="host") if wishes.installs else wishes.settings
    if wishes.elsewhere or (hides_gpus() and not wishes.names_card):
        machine = Machine(platform=settings.platform, engine="" if settings.engine == "auto" else settings.engine)
        if not (wishes.driver and wishes.names_card):
            return machine
        known = Device(name=settings.card, capability=find_card(settings.card).capability, driver=wishes.driver)
        return replace(machine, devices=(known,))
    machine = read_machine(settings, seconds=BRIEF_SECONDS)
    if not machine.devices or settings.engine not in {"auto", "docker"}:
        return machine
    try:
        engine = choose_engine(settings).engine
    except ToolkitError:  # the command that needs it says so
        return machine
    runtime = engine.has_gpu() if engine.name == "docker" else None
    kept = settings.engine == "docker" or engine.name == "host"
    return replace(machine, has_nvidia_runtime=runtime, engine=engine.name if kept or runtime else "")


def _settle(decision: "Decision", wishes: Wishes) -> Settings:
    """Return the settings with the versions of a decision."""
    settings = wishes.settings
    python = {"python": wishes.python or settings.python} if wishes.installs else {}
    return settings.take(replace(settings.versions.merge(decision.versions), **python))


def _apply(decision: "Decision", wishes: Wishes) -> Chosen:
    """Return the set of a decision, or the CPU set if no GPU can be used now."""
    settings = wishes.settings
    if _takes_gpu(wishes, decision):
        settings = _settle(decision, wishes)
        if settings.engine == "auto" and decision.on_host:
            settings = settings.take(settings.versions, engine="host")
    elif not wishes.installs:  # else the environment's Python decides which CPU set it gets
        cpu = next((way.versions.tensorflow for way in decision.ways if way.kind == "cpu"), settings.tensorflow)
        settings = settings.take(replace(settings.versions, tensorflow=cpu, python=decision.versions.python))
    return replace(keep(replace(wishes, settings=settings)), decision=decision)


def _say(machine: "Machine", decision: "Decision", console: Console, wishes: Wishes) -> None:
    """Say which cards were found, what runs, why, and what would have to be done first."""
    from toolkit.doctor.decision import WITHOUT_GPU, describe_cards
    from toolkit.versions.rules import warn_of_advisories

    way, devices = decision.way, decision.devices or machine.devices
    name = way.versions.describe() if _takes_gpu(wishes, decision) else "the CPU set"
    if devices:
        console.heading("card", describe_cards(devices))
        console.heading("set", f"{name}: {way.reason}")
    else:
        console.heading("card", f"none: {way.reason}")
    if not (devices or (machine.fault and machine.fault.id not in WITHOUT_GPU)):
        return
    known = warn_of_advisories(load_table(), way.versions.tensorflow)  # which is said of the set that is taken
    for line in decision.lines(warns=wishes.gpu is not False):
        if line != known or wishes.installs:
            console.say(f"  {line}")
    if decision.uses_gpu or way.kind == "cpu":
        return
    if not wishes.installs:
        console.say(f"  then: {way.command}")
    elif decision.remedy:
        console.say("  until then it computes on the processor")


def read_wheel_option(wheel: str | None) -> Path | None:
    """Return the file that ``--wheel`` names, or None for the published wheel. Raises UsageError if it is not one."""
    if wheel is None or wheel == PUBLISHED:
        return None
    path = Path(wheel)
    wheels = sorted(path.glob("tensorflow*.whl")) if path.is_dir() else [path]
    if len(wheels) != 1 or not wheels[0].is_file():
        raise UsageError(
            f"there is no wheel {path}" if not wheels or not path.is_dir() else f"{path} holds {len(wheels)} wheels",
            remedy=f"give a .whl file, a folder with one such as dist/NAME, or {PUBLISHED} for the published one",
        )
    return wheels[0].resolve()
