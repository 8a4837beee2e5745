"""What it takes to run a finished run again: its arguments, a place, and nothing that forbids it."""

from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import training
from toolkit.audit import checkpoint
from toolkit.audit import record as records
from toolkit.audit import run as runs
from toolkit.audit.record import RunRecord
from toolkit.console import Console
from toolkit.errors import CheckError, PreflightError, UsageError
from toolkit.findings import require
from toolkit.plan import Plan, Step
from toolkit.reproduction import place, recall
from toolkit.reproduction.place import Place
from toolkit.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A run that is to be repeated; nothing is started or made yet.

    Attributes:
        record: the first run.
        arguments: of the training job.
        place: where.
        gpu: whether the job gets the GPUs.
        settings: those of the command.
    """

    record: RunRecord
    arguments: tuple[str, ...]
    place: Place
    gpu: bool
    settings: Settings

    def plan(self) -> Plan:
        """Return the steps of :func:`toolkit.reproduction.rerun.run`."""
        config = training.read_arguments(self.arguments, replace(self.settings, runs=str(self.choose_name())))
        planned = self.place.workplace.plan if self.place.workplace else None
        named = self.place.environment.reference if self.place.environment else ""
        reference = planned.reference if planned else named
        jobs = {
            "probe": place.plan_probe(self.arguments, config, gpu=self.gpu),
            "train": training.plan(self.arguments, config, parent={}, gpu=self.gpu),
        }
        steps = [
            Step(title=title, commands=tuple(map(tuple, self.place.engine.commands(reference, job))))
            for title, job in jobs.items()
        ]
        made = Step(title="environment", commands=planned.commands if planned else (), outputs=(reference,))
        return Plan(steps=(made, *steps))

    def choose_name(self) -> Path:
        """A name for a second run that is kept: that of the first, ``again`` and a number."""
        base = Path(self.settings.runs) / f"{self.record.folder.resolve().name}-again"
        number = 1
        while (path := base.with_name(f"{base.name}-{number}")).exists():
            number += 1
        return path


def plan(
    target: Path,
    settings: Settings,
    *,
    wheel: str | None,
    gpu: bool | None,
    data_dir: str,
    console: Console,
    dry_run: bool = False,
) -> Attempt:
    """Read a run's manifest and decide how it is repeated. A dry run pulls no base image.

    Raises:
        IntegrityError: there is no manifest of a run.
        CheckError: the run is not finished, or its folder no longer is what its manifest says.
        PreflightError: it was made in more than one environment.
        UnsupportedError: this clone cannot do that run, or not make its environment.
        UsageError: it read a local copy of the data, and nobody says where that is.
    """
    folder = records.find(target)
    if runs.is_unfinished(folder):
        raise CheckError(
            f"there is nothing to reproduce in {folder}",
            why=runs.describe_unfinished(folder),
            remedy="the command that began it goes on from there; reproduce it when it is finished",
        )
    record = records.read(folder)
    require(runs.verify_own(record), remedy=f"a record that does not hold proves nothing: toolkit verify {folder}")
    _require_one_environment(record)
    arguments = [*recall.recall_arguments(record), *recall.settle(record), *_find_data(record, data_dir)]
    found = place.find(record, settings, wheel, console, dry_run=dry_run)
    # The job of a CUDA set finds the GPUs or not: what it finds must be what it found then.
    cuda = any(name.startswith("nvidia-") for name in record.value.get("software", {}))
    use_gpu = gpu if gpu is not None else cuda and found.engine.has_gpu()
    return Attempt(record=record, arguments=tuple(arguments), place=found, gpu=use_gpu, settings=settings)


def _require_one_environment(record: RunRecord) -> None:
    """A run that went on elsewhere has weights that no single environment gives."""
    saved = checkpoint.read(record.folder / runs.CHECKPOINTS)
    other = runs.compare_environments(saved.position["environment"], record.environment) if saved else ""
    if other:
        raise PreflightError(
            "the run was made in more than one environment, so none gives its weights again",
            why=f"it was resumed after step {', '.join(map(str, record.resumed))}, and there {other}",
            remedy="compare with a run that was not moved",
        )


def _find_data(record: RunRecord, given: str) -> list[str]:
    recorded = str(record.config.get("data_dir") or "")
    # The path of a container says nothing about this machine.
    usable = recorded and record.parent.get("kind") != "image" and Path(recorded).is_dir()
    if recorded and not given and not usable:
        raise UsageError(
            "the run read a local copy of its data, and it is not known where that is now",
            why=f"its job knew the folder as {recorded}",
            remedy="give it with --data-dir; the digest of what is read must be the recorded one",
        )
    found = given or (recorded if usable else "")
    return ["--data-dir", found] if found else []
