"""Repeats a finished run in the environment that it was made in, or in an equal one, and compares the two runs."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit import files, pipeline, training
from toolkit.console import Console
from toolkit.engine import Engine, Environment, Job, Mount, host
from toolkit.engine.choice import adopt, choose
from toolkit.errors import (
    CheckError,
    EngineError,
    InterruptionError,
    JobError,
    PreflightError,
    UnsupportedError,
    UsageError,
)
from toolkit.findings import Finding, require
from toolkit.manifest import FILE
from toolkit.plan import Plan, Step
from toolkit.project import shorten
from toolkit.record import comparison, environment, image, run
from toolkit.record.comparison import Comparison
from toolkit.record.wheel import flatten
from toolkit.settings import Settings
from train import reader
from train.config import OPEN, TrainConfig
from train.errors import DataError
from train.reader import RunRecord

PROBE = Path(__file__).parent / "probe.py"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A run that is to be repeated; nothing is started or made yet.

    Attributes:
        record: the first run.
        arguments: of the training job.
        engine: where the job runs.
        environment: the one of the first run; None where one must be made.
        resolved: how an environment is made; None where the run's own is there.
        gpu: whether the job gets the GPUs.
        settings: those of the command.
    """

    record: RunRecord
    arguments: tuple[str, ...]
    engine: Engine
    environment: Environment | None
    resolved: pipeline.Resolved | None
    gpu: bool
    settings: Settings

    def plan(self) -> Plan:
        """Return the steps of :func:`repeat`."""
        config = training.read_arguments(self.arguments, replace(self.settings, runs=str(self.choose_name())))
        planned = self.resolved.plan if self.resolved else None
        named = self.environment.reference if self.environment else ""
        reference = planned.reference if planned else named
        jobs = {
            "probe": plan_probe(self.arguments, config, gpu=self.gpu),
            "train": training.plan(self.arguments, config, parent={}, gpu=self.gpu),
        }
        steps = [
            Step(title=title, commands=tuple(map(tuple, self.engine.commands(reference, job))))
            for title, job in jobs.items()
        ]
        made = Step(title="environment", commands=planned.commands if planned else (), outputs=(reference,))
        return Plan(steps=(made, *steps))

    def choose_name(self) -> Path:
        """Return the folder of a second run that is kept: the name of the first, ``again`` and a number."""
        base = Path(self.settings.runs) / f"{self.record.folder.resolve().name}-again"
        number = 1
        while (path := base.with_name(f"{base.name}-{number}")).exists():
            number += 1
        return path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The comparison of a run with its repetition.

    Attributes:
        comparison: weights and recorded numbers.
        links: whether each link of the chain is the same.
        rung: the highest rung that was reached.
        kept: folder of the second run, where it was kept.
    """

    comparison: Comparison
    links: tuple[Finding, ...]
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
    """Read a run's manifest and decide how to repeat it. A dry run pulls no base image.

    Raises:
        IntegrityError: there is no manifest of a run.
        CheckError: the run is not finished, or its folder or environment does not hold.
        PreflightError: the run was made in more than one environment.
        UnsupportedError: this clone cannot do that run, or cannot make its environment.
        UsageError: the run read a local copy of the data, and no folder is given.
    """
    folder = target.parent if target.name == FILE else target
    if run.is_unfinished(folder):
        raise CheckError(
            f"there is nothing to reproduce in {folder}",
            why=run.describe_unfinished(folder),
            remedy="the command that began it goes on from there; reproduce it when it is finished",
        )
    record = reader.read_record(folder)
    require(run.verify_own(record), remedy=f"a record that does not hold proves nothing: toolkit verify {folder}")
    _require_one_environment(record)
    arguments = [*_choose_arguments(record), *_find_data(record, data_dir)]
    engine, found, resolved = _choose_environment(record.parent, settings, wheel, console, dry_run=dry_run)
    # A job of a CUDA set uses the GPUs that it finds: give them to it if the first run had them.
    cuda = any(name.startswith("nvidia-") for name in record.value.get("software", {}))
    return Attempt(
        record=record,
        arguments=tuple(arguments),
        engine=engine,
        environment=found,
        resolved=resolved,
        gpu=gpu if gpu is not None else cuda and engine.has_gpu(),
        settings=settings,
    )


def _choose_arguments(record: RunRecord) -> list[str]:
    """Return the arguments that repeat a run: its configuration, and the values that it chose itself.

    Raises:
        UnsupportedError: the training job of this clone does not know the configuration.
    """
    written = record.folder / reader.CONFIG
    file = written if written.exists() else record.folder / FILE
    try:
        config = reader.read_config(file)
    except DataError as error:
        raise UnsupportedError(
            "the training job of this clone cannot do that run",
            why=f"it does not know the configuration: {error.why}",
            remedy="check out the revision that the run was made with",
        ) from error
    chosen = [name for name in sorted(OPEN) if not getattr(config, name)]
    options = [word for name in chosen for word in (f"--{name.replace('_', '-')}", str(record.environment[name]))]
    return [config.dataset, "--config", str(file), *options]


def _require_one_environment(record: RunRecord) -> None:
    saved = reader.read_newest_state(record.folder)
    other = reader.compare_environments(saved.position["environment"], record.environment) if saved else ""
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


def _choose_environment(
    link: Mapping[str, Any], settings: Settings, wheel: str | None, console: Console, *, dry_run: bool
) -> tuple[Engine, Environment | None, pipeline.Resolved | None]:
    """Return the run's own environment if it is on this machine and the user asks for no other, else how to make one.

    Raises: as :func:`toolkit.pipeline.resolve`, and
        CheckError: the run's environment is here, but was changed.
    """
    asked = wheel or any(settings.sources[name] == "flag" for name in ("engine", "tensorflow", "cuda", "cudnn"))
    recorded = None if asked else _find_recorded(link, settings)
    if recorded:
        return *recorded, None
    if link and settings.sources["engine"] == "default":
        settings = replace(settings, engine="docker" if link.get("kind") == "image" else "host")
    resolved = pipeline.resolve(pipeline.Request(settings=settings, wheel=wheel, dry_run=dry_run), console)
    return resolved.engine, None, resolved


def _find_recorded(link: Mapping[str, Any], settings: Settings) -> tuple[Engine, Environment] | None:
    if link.get("kind") == "environment":
        folder = run.find_environment(link, Path(settings.state))
        if folder is None or not host.interpreter(folder).exists():
            return None
        require(environment.verify(folder), remedy=f"remove {folder}: it is made again, as it was")
        found = Environment(
            kind="environment", digest=str(link["digest"]), reference=shorten(folder), folder=folder, reused=True
        )
        return choose(replace(settings, engine="host")).engine, found
    if link.get("kind") == "image":
        try:
            container, found = adopt(settings, str(link["digest"]))
        except (UsageError, EngineError):
            return None
        # The record of an image that was built here says what it was made from; an adopted one has none.
        folder = image.find_record(found.digest, Path(settings.state)) or found.folder
        return container, replace(found, folder=folder)
    return None


def repeat(attempt: Attempt, *, keep: bool, console: Console) -> Outcome:
    """Make the environment if necessary, check that it can give the same bits, run the job, and compare.

    Raises:
        PreflightError: software, hardware or data differ from the first run's.
        JobError: the training job failed; it has said why.
    """
    record = attempt.record
    used = _prepare(attempt, console)
    with _scratch_folder(attempt) as scratch:
        console.heading("software", require_same_software(record, training.describe_parent(used)))
        config = training.read_arguments(attempt.arguments, replace(attempt.settings, runs=str(scratch)))
        job = plan_probe(attempt.arguments, config, gpu=attempt.gpu)
        for mount in job.mounts:
            if mount.writable:
                files.require_writable(mount.source)
        require_same_machine(record, probe(attempt.engine, used, job))
        machine = f"{', '.join(record.environment['devices'])}; {record.environment['threads']} threads"
        console.heading("machine", machine)
        training.run(attempt.engine, used, attempt.arguments, config, gpu=attempt.gpu, quiet=console.verbosity < 0)
        now = reader.read_record(config.run_dir)
        compared = comparison.compare(record, now)
        links = comparison.walk(record, now, compared)
        kept = None
        if keep or not compared.holds:
            folder = attempt.choose_name()
            scratch.rename(folder)
            kept = folder / config.run_dir.name
    return Outcome(comparison=compared, links=tuple(links), rung=comparison.rank(links), kept=kept)


def _prepare(attempt: Attempt, console: Console) -> Environment:
    if attempt.environment:
        console.heading("place", f"the run's own {attempt.environment.kind} {attempt.environment.reference}")
        return attempt.environment
    if attempt.resolved is None:
        raise ValueError("an attempt has an environment, or says how to make one")
    return pipeline.environment_task(attempt.resolved, console).run()


@contextmanager
def _scratch_folder(attempt: Attempt) -> Iterator[Path]:
    """Yield a new folder beside the runs, and remove it at the end if it still has that name.

    The folder must be new: the job would resume what it finds.
    """
    parent = Path(attempt.settings.runs)
    files.require_writable(parent)
    scratch = Path(tempfile.mkdtemp(prefix=f".{attempt.record.folder.resolve().name}-again-", dir=parent))
    try:
        scratch.chmod(0o755)
        yield scratch
    except KeyboardInterrupt:
        # A repetition that is itself resumed would prove less.
        raise InterruptionError("interrupted", remedy="the same command begins the second run anew") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def require_same_software(record: RunRecord, now: Mapping[str, Any]) -> str:
    """Return which wheel or locked set the run and an environment have in common.

    Args:
        record: the run.
        now: the environment, as :func:`toolkit.training.describe_parent` describes it.

    Raises:
        PreflightError: they have none in common.
    """
    then = flatten(record.parent)
    if not then:
        return "the run names no environment, so only the version of TensorFlow can be compared"
    known = {link["digest"]: link["kind"] for link in then}
    shared = next((link for link in flatten(now) if link["digest"] in known), None)
    if shared:
        return f"the same {shared['kind']} {shared['digest']}"
    raise PreflightError(
        "this is not the software that the run was made with",
        why="; ".join(
            f"{name}: {', '.join(str(link['kind']) + ' ' + str(link['digest'])[:19] for link in links)}"
            for name, links in (("then", then), ("now", flatten(now)))
        ),
        remedy="give the same --wheel, --tensorflow, --cuda and --cudnn as then, from the same revision of this clone",
    )


def require_same_machine(record: RunRecord, found: Mapping[str, Any]) -> None:
    """Raise if processor or GPU, TensorFlow, threads, batch size or data differ from the run's.

    Raises:
        PreflightError: one of them differs.
    """
    other = reader.compare_environments(record.environment, found)
    if other:
        raise PreflightError(
            "the run cannot give the same bits here",
            why=other,
            remedy="run it where it was made: bits are promised for the same hardware, software and data only",
        )


def plan_probe(arguments: Sequence[str], config: TrainConfig, *, gpu: bool) -> Job:
    """Return a job that runs ``probe.py`` as the training job would run: same arguments, mounts, network and GPUs."""
    job = training.plan(arguments, config, parent={}, gpu=gpu)
    question = Mount(source=PROBE, target="/opt/toolkit/probe.py")
    mounts = (question, *(mount for mount in job.mounts if mount.source != config.run_dir))
    return replace(job, title="probe", argv=("-P", question, *job.argv[3:]), mounts=mounts, terminal=False)


def probe(engine: Engine, used: Environment, job: Job) -> dict[str, Any]:
    """Return the environment that the training job would record.

    Raises:
        UnsupportedError: the training job there does not understand the arguments.
        JobError: the job cannot run there, or cannot read the data; it has said why.
    """
    lines: list[str] = []
    code = engine.run(used, job, lines.append)
    if code == UsageError.exit_code and used.kind == "image":
        raise UnsupportedError(
            "the training job in the run's image does not understand these arguments",
            why="the image was made by another revision of this program",
            remedy="--engine docker makes an image of the same locked set with this revision",
        )
    try:
        value = json.loads(lines[-1]) if not code else None
    except (ValueError, IndexError):
        value = None
    if not isinstance(value, dict):
        raise JobError("looking at the environment", code or 1, why="" if code else "it did not answer")
    return value


def describe_difference(attempt: Attempt, outcome: Outcome) -> str:
    """Say in which number the two runs first differ, and what else differs."""
    compared = outcome.comparison
    if compared.first:
        text = f"{compared.first}; the records before it, of {compared.compared}, are equal"
    elif compared.compared:
        text = f"all {compared.compared} records of steps and epochs are equal, only the weights differ"
    else:
        text = "the first run's records are not here, so where they part cannot be seen"
    others = [link.id for link in outcome.links if link.state == "fail" and link.id != "weights"]
    text += f"; another than then: {', '.join(others)}" if others else ""
    resumed = attempt.record.resumed
    text += f"; the first run was interrupted after step {', '.join(map(str, resumed))}" if resumed else ""
    return text


def summarize(attempt: Attempt, outcome: Outcome) -> str:
    """Return the outcome in one line."""
    steps = attempt.record.result["steps"]
    verdict = "the same weights to the bit" if outcome.comparison.equal else "other weights"
    verdict += ", but not the recorded numbers" if outcome.comparison.equal and outcome.comparison.first else ""
    kept = f"; the second run is kept in {shorten(outcome.kept)}" if outcome.kept else ""
    return f"{attempt.record.folder}: {outcome.rung}, {verdict} after {steps} steps{kept}"
