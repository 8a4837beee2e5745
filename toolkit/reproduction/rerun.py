"""Run a finished run again in a folder of its own, compare, and keep the second only where it tells something."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit import files, pipeline, training
from toolkit.audit import record as records
from toolkit.console import Console
from toolkit.engine import Environment
from toolkit.errors import InterruptionError
from toolkit.findings import Finding
from toolkit.project import shorten
from toolkit.reproduction import comparison, ladder, place
from toolkit.reproduction.attempt import Attempt
from toolkit.reproduction.comparison import Comparison


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
    links: tuple[Finding, ...]
    rung: str
    kept: Path | None


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
            place_ = attempt.choose_name()
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
    others = [link.id for link in outcome.links if link.state == "fail" and link.id != "weights"]
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
    return pipeline.environment_task(attempt.place.workplace, console).run()


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


def summarize(attempt: Attempt, outcome: Outcome) -> str:
    """The outcome in one line, for a person."""
    steps = attempt.record.result["steps"]
    verdict = "the same weights to the bit" if outcome.comparison.equal else "other weights"
    verdict += ", but not the recorded numbers" if outcome.comparison.equal and outcome.comparison.first else ""
    kept = f"; the second run is kept in {shorten(outcome.kept)}" if outcome.kept else ""
    return f"{attempt.record.folder}: {outcome.rung}, {verdict} after {steps} steps{kept}"
