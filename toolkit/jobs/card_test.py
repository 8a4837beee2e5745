"""Tests a card as its owner would use it, step by step, and keeps one report that may be given to anybody.

Each step is what another command does. A step that fails is written down, and those that do not need it go on. What was
made stays in one folder, so that the same command goes on after an interruption.
"""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

from toolkit import __version__
from toolkit.base import files, privacy
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, GpuError, InterruptionError, ToolkitError
from toolkit.base.steps import Task, run
from toolkit.checks.check import Expectation
from toolkit.doctor.decision import describe_card
from toolkit.doctor.reading import find_system
from toolkit.graft.graft_plan import GraftPlan
from toolkit.jobs import choice, pipeline, training_job
from toolkit.smoke.runner import Report
from toolkit.versions.settings import Settings
from toolkit.wheel.wheel_folder import FinishedWheel
from train.cores import count_cores
from train.system import memory, signals

FOLDER: Final = Path("card-test")
REPORT: Final = Path("card-report.md")
MINUTES: Final = 15
"""No step begins after this time."""

GIGABYTES: Final = 8
PROFILED: Final = "10:10"
"""The step of training that is profiled: by then everything is compiled."""

T = TypeVar("T")


@dataclass(kw_only=True)
class CardReport:
    path: Path
    console: Console
    writes: bool = True  # not in a dry run
    facts: list[str] = field(default_factory=list)  # of machine and decision
    rows: list[tuple[str, str, str, float]] = field(default_factory=list)  # step, worked or not, what it gave, seconds
    began: float = field(default_factory=monotonic)

    def attempt(self, title: str, action: Callable[[], T], tell: Callable[[T], str]) -> T | None:
        """Return the result of a step, or None if it failed or no time is left. ``tell`` says what it gave.

        Raises InterruptionError.
        """
        signals.check()
        begun = monotonic()
        if begun - self.began > MINUTES * 60:
            self._add(title, "left out", f"{MINUTES} minutes are over: the same command goes on", 0)
            return None
        result: T | None = None
        try:
            result = action()
            self._add(title, "worked", tell(result), monotonic() - begun)
        except InterruptionError:
            raise
        except ToolkitError as error:
            signals.check()
            self._add(title, "failed", str(error), monotonic() - begun)
        return result

    def _add(self, title: str, state: str, text: str, seconds: float) -> None:
        self.rows.append((title, state, text, seconds))
        self.console.heading(title, f"{state}: {text}" if state != "worked" else text)
        self.write()

    def list_titles(self, state: str) -> list[str]:
        return [row[0] for row in self.rows if row[1] == state]

    def write(self) -> None:
        if self.writes:
            files.write_atomically(self.path, self.render())

    def render(self) -> str:
        """Return the report. Its first line says what worked; no line has a path, name or host of its owner."""
        states = [(state, self.list_titles(state)) for state in ("worked", "failed", "left out")]
        first = "; ".join(f"{state}: {', '.join(titles)}" for state, titles in states if titles)
        table = [
            f"| {title} | {state} | {' '.join(text.split()).replace('|', '/')} | {seconds:.0f} |"
            for title, state, text, seconds in self.rows
        ]
        lines = [f"# {first or 'nothing was tried'}", "", *(f"- {fact}" for fact in self.facts), ""]
        lines += ["| step | | what it gave | seconds |", "|---|---|---|---|", *table]
        return privacy.leave_out_persons("\n".join(lines) + "\n")


@dataclass(frozen=True, kw_only=True)
class CardTest:
    settings: Settings
    how: choice.Manner
    make_graft: Callable[[GraftPlan], FinishedWheel | None]
    report: CardReport

    def run(self) -> None:
        """Try everything, up to where the card begins if there is none.

        Raises GpuError if no card can be used, and CheckError if a step failed.
        """
        console = self.how.console
        console.say(
            f"at most {MINUTES} minutes and {GIGABYTES} GB, in {FOLDER}; after Ctrl-C the same command goes on. The "
            f"report is {REPORT}."
        )
        attempt, wishes = self.report.attempt, choice.Wishes(settings=self.settings)
        chosen = attempt("machine", partial(choice.choose, wishes, self.how), self._describe)
        if chosen and chosen.missing:
            made = attempt(
                "graft", partial(self.make_graft, chosen.missing), lambda made: made.wheel.name if made else ""
            )
            chosen = chosen.take(made) if made else None
        ready = partial(pipeline.choose_environment, chosen, self.how) if chosen else None
        resolved = (
            attempt("packages", ready, lambda it: it.plan.spec.requirements if it.plan else "") if ready else None
        )
        if chosen is None or resolved is None:
            self._conclude(chosen)
            return
        prepared = pipeline.environment_task(resolved)
        devices = ("processor", "card") if _uses_card(resolved.chosen) else ("processor",)
        tasks = [(device, self._list_tasks(resolved, prepared, device)) for device in devices]
        if self.how.dry_run:
            run([prepared, *(task for _, each in tasks for task in each)], console, dry_run=True)
            return
        if attempt("environment", partial(_do, prepared), lambda made: f"{made.kind} {made.digest[:19]}"):
            for device, (checked, first, again) in tasks:
                with _hiding_cards() if device == "processor" else nullcontext():
                    attempt(f"checks on the {device}", partial(_do, checked), _describe_checks)
                    if trained := attempt(f"digits on the {device}", partial(_do, first), _describe_run):
                        compare = partial(_compare_runs, trained, Path(again.step.outputs[0]))
                        attempt(f"again and profiled on the {device}", partial(_do, again), compare)
        self._conclude(chosen)

    def _describe(self, chosen: choice.Chosen) -> str:
        decision = chosen.decision
        cards = [describe_card(device) for device in decision.devices] if decision else []
        drivers = {device.driver for device in decision.devices if device.driver} if decision else ()
        system = f"{find_system()}, glibc {platform.libc_ver()[1]}, Python {platform.python_version()}"
        self.report.facts += [
            f"toolkit {__version__}, {system}",
            f"{count_cores()} cores, {memory.read_total() / 2**30:.0f} GiB of memory",
            f"card: {', '.join(cards) or 'none'}{''.join(f', driver {driver}' for driver in drivers)}",
        ]
        if decision is None:
            return chosen.settings.versions.describe()
        self.report.facts += [f"decision: {decision.way.describe()}, because {decision.way.reason}", *decision.lines()]
        return decision.way.describe()

    def _list_tasks(
        self, resolved: pipeline.ResolvedEnvironment, prepared: Task[Any], device: str
    ) -> Sequence[Task[Any]]:
        on_card = device == "card"
        there = replace(resolved, chosen=replace(resolved.chosen, gpu=on_card))
        settings = there.chosen.settings
        expectation = Expectation(
            version=settings.tensorflow, cuda=settings.cuda, cudnn=settings.cudnn, device="gpu" if on_card else "cpu"
        )
        tasks: list[Task[Any]] = [pipeline.smoke_task(there, prepared, expectation)]
        for name, more in (("first", ()), ("again", ("--profile", PROFILED))):
            arguments = ["digits", *more]
            runs = str(FOLDER / f"{device}-{name}")
            config = training_job.read_arguments(arguments, replace(settings, runs=runs))
            tasks.append(pipeline.train_task(there, prepared, arguments, config))
        return tasks

    def _conclude(self, chosen: choice.Chosen | None) -> None:
        """Say where the report is. Raises what :meth:`run` raises."""
        if self.how.dry_run:
            return
        failed, left = self.report.list_titles("failed"), self.report.list_titles("left out")
        console, remedy = self.how.console, f"send {REPORT}: it holds nothing personal"
        console.result({"report": str(REPORT), "failed": failed, "left_out": left}, f"{REPORT}: {remedy}")
        if failed or left:
            raise CheckError(f"{', '.join([*failed, *left])} did not work", remedy=remedy)
        if chosen and not _uses_card(chosen):
            why = chosen.decision.way.reason if chosen.decision else "the processor was asked for"
            first = chosen.decision.remedy if chosen.decision else ""
            what = "everything before the card worked, and no card can be used here"
            raise GpuError(what, why=why, remedy=first or remedy)


def _uses_card(chosen: choice.Chosen) -> bool:
    return bool(chosen.decision and chosen.decision.uses_gpu) or bool(chosen.settings.cuda and not chosen.decision)


@contextmanager
def _hiding_cards() -> Iterator[None]:
    """Let what is started see no card: the host engine hides none from a job that asks for none."""
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    os.environ[name] = "-1"
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ.update({name: before} if before is not None else {})


def _do(task: Task[T]) -> T:
    task.result = task.action()
    return task.result


def _describe_checks(report: Report) -> str:
    report.require_pass()
    return report.summary


def _describe_run(value: dict[str, Any]) -> str:
    result = value["result"]
    images = value["environment"]["batch_size"] * (result["steps"] - 1)
    rate = images / max(result["train_seconds"] - result["first_step_seconds"], 1e-9)
    used = [("process", "process_peak_bytes"), ("device", "device_peak_bytes")]
    peaks = ", ".join(f"{result[key] / 1e6:,.0f} MB of the {name}" for name, key in used if key in result)
    return (
        f"{result['test_accuracy']:.2%} after {result['epochs']} epoch{'s' * (result['epochs'] != 1)} on "
        f"{', '.join(value['hardware']['devices'])}, "
        f"{rate:,.0f} images/s, {peaks}, weights {value['weights_sha256'][:8]}"
    )


def _compare_runs(first: dict[str, Any], folder: Path, again: dict[str, Any]) -> str:
    """Describe a second run, in ``folder``. Raises CheckError if its weights are others, or it has no profile."""
    if first["weights_sha256"] != again["weights_sha256"]:
        names = " and ".join(value["weights_sha256"][:8] for value in (first, again))
        raise CheckError("two equal trainings gave other weights", why=names)
    if not any(folder.rglob("*.xplane.pb")):
        raise CheckError("the profile of a step is missing")
    return f"the same bits; {_describe_run(again)}"
