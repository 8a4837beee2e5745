"""Run a finished run again in a folder of its own, compare, and keep the second only where it tells something."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import chain, files, training
from toolkit.audit import checkpoint
from toolkit.audit import record as records
from toolkit.audit import run as runs
from toolkit.audit.finding import require
from toolkit.audit.record import RunRecord
from toolkit.console import Console
from toolkit.engine import Environment
from toolkit.errors import CheckError, InterruptionError, PreflightError, UsageError
from toolkit.project import shorten
from toolkit.reproduction import comparison, ladder, place, recall
from toolkit.reproduction.comparison import Comparison
from toolkit.reproduction.ladder import Link
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

    def commands(self) -> list[Sequence[str]]:
        """What :func:`run` amounts to, paste-able."""
        config = training.read_arguments(self.arguments, replace(self.settings, runs=str(_choose_name(self))))
        planned = self.place.workplace.engine.plan(self.place.workplace.recipe) if self.place.workplace else None
        named = self.place.environment.reference if self.place.environment else ""
        reference = planned.reference if planned else named
        jobs = [
            place.plan_probe(self.arguments, config, gpu=self.gpu),
            training.plan(self.arguments, config, parent={}, gpu=self.gpu),
        ]
        made = planned.commands if planned else ()
        return [*made, *(argv for job in jobs for argv in self.place.engine.commands(reference, job))]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of it.

    Attributes:
        comparison: of the two runs.
        links: of the chain, then and now.
        rung: that was reached.
        kept: folder of the second run, where it was kept.
    """

    comparison: Comparison
    links: tuple[Link, ...]
    rung: str
    kept: Path | None


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


def run(attempt: Attempt, *, keep: bool, console: Console) -> Outcome:
    """Make the environment if need be, see that it can give the same bits, run, and compare.

    Raises:
        PreflightError: the software, the hardware or the data is another.
        JobError: the training job failed; it has said why.
    """
    record = attempt.record
    environment = _prepare(attempt, console)
    with _opened(attempt) as scratch:
        same = place.require_same_software(record, training.describe_parent(environment))
        console.heading("software", same)
        config = training.read_arguments(attempt.arguments, replace(attempt.settings, runs=str(scratch)))
        job = place.plan_probe(attempt.arguments, config, gpu=attempt.gpu)
        for mount in job.mounts:
            if mount.writable:
                files.require_writable(mount.source)
        place.require_same_machine(record, place.probe(attempt.place.engine, environment, job))
        console.heading(
            "machine", f"{', '.join(record.environment['devices'])}; {record.environment['threads']} threads"
        )
        training.run(
            attempt.place.engine,
            environment,
            attempt.arguments,
            config,
            gpu=attempt.gpu,
            quiet=console.verbosity < 0,
        )
        now = records.read(config.run_dir)
        compared = comparison.compare(record, now)
        links = ladder.walk(record, now, compared)
        kept = None
        if keep or not compared.holds:
            place_ = _choose_name(attempt)
            scratch.rename(place_)
            kept = place_ / config.run_dir.name
    return Outcome(comparison=compared, links=tuple(links), rung=ladder.rank(links), kept=kept)


def describe_difference(attempt: Attempt, outcome: Outcome) -> str:
    """Where the two runs part, for a person."""
    compared = outcome.comparison
    if compared.first:
        steps = f"the records before it, of {compared.compared}, are equal"
        text = f"{compared.first}; {steps}"
    elif compared.compared:
        text = f"all {compared.compared} records of steps and epochs are equal, only the weights differ"
    else:
        text = "the first run's records are not here, so where they part cannot be seen"
    others = [link.name for link in outcome.links if link.state == "other" and link.name != "weights"]
    text += f"; another than then: {', '.join(others)}" if others else ""
    resumed = attempt.record.resumed
    text += f"; the first run was interrupted after step {', '.join(map(str, resumed))}" if resumed else ""
    return text


def _prepare(attempt: Attempt, console: Console) -> Environment:
    if attempt.place.environment:
        console.heading(
            "place", f"the run's own {attempt.place.environment.kind} {attempt.place.environment.reference}"
        )
        return attempt.place.environment
    if attempt.place.workplace is None:
        raise ValueError("a place without an environment says how to make one")
    return chain.prepare(attempt.place.workplace, console)


@contextmanager
def _opened(attempt: Attempt) -> Iterator[Path]:
    """A new folder beside the runs; what was not renamed is removed with it, whatever happens.

    Never one that is there: the job would go on with what it finds in it.
    """
    parent = Path(attempt.settings.runs)
    files.require_writable(parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{attempt.record.folder.resolve().name}-again-", dir=parent))
    try:
        scratch.chmod(0o755)
        yield scratch
    except KeyboardInterrupt:
        # A second run that was broken off and went on would prove less than one that was not.
        raise InterruptionError("interrupted", remedy="the same command begins the second run anew") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _choose_name(attempt: Attempt) -> Path:
    """A name for a second run that is kept: that of the first, ``again`` and a number."""
    base = Path(attempt.settings.runs) / f"{attempt.record.folder.resolve().name}-again"
    number = 1
    while (path := base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path


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


def summarize(attempt: Attempt, outcome: Outcome) -> str:
    """The outcome in one line, for a person."""
    steps = attempt.record.result["steps"]
    verdict = "the same weights to the bit" if outcome.comparison.equal else "other weights"
    verdict += ", but not the recorded numbers" if outcome.comparison.equal and outcome.comparison.first else ""
    kept = f"; the second run is kept in {shorten(outcome.kept)}" if outcome.kept else ""
    return f"{attempt.record.folder}: {outcome.rung}, {verdict} after {steps} steps{kept}"
