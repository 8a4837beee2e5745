"""Repeats a finished run in its own environment or an equal one, and compares the two runs."""

import errno
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolkit import records
from toolkit.base import digest, files, manifest, project, seals, steps
from toolkit.base.console import Console
from toolkit.base.errors import (
    CheckError,
    DataError,
    EngineError,
    InterruptionError,
    JobError,
    PreflightError,
    UnsupportedError,
    UsageError,
)
from toolkit.base.findings import Finding, require
from toolkit.base.manifest import FILE
from toolkit.base.project import shorten
from toolkit.base.steps import Step, Task
from toolkit.engine import Engine, Environment, Job, Mount, gpus, host
from toolkit.engine.packed import find_packer
from toolkit.jobs import engines, pipeline, training_job
from toolkit.jobs.choice import Manner, Wishes, keep
from toolkit.records import comparison
from toolkit.records.comparison import Comparison
from toolkit.records.origins import flatten
from toolkit.records.run import check_run, describe_unfinished, is_unfinished
from toolkit.versions.set import VERSIONS
from toolkit.versions.settings import Settings
from toolkit.versions.table import load_table
from train.config.configuration import NAMED, OPEN, TrainConfig
from train.record import reader
from train.record.reader import RunRecord

PROBE = project.ROOT / "train" / "use" / "probe.py"


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    record: RunRecord
    arguments: tuple[str, ...]
    resolved: pipeline.ResolvedEnvironment

    def choose_folder(self) -> Path:
        base = Path(self.resolved.chosen.settings.runs) / f"{self.record.folder.resolve().name}-again"
        number = 1
        while (path := base.with_name(f"{base.name}-{number}")).exists():
            number += 1
        return path


@dataclass(frozen=True, kw_only=True)
class Outcome:
    comparison: Comparison
    links: tuple[Finding, ...]  # for each link of the chain, whether the runs agree
    level: str  # the highest level that was reached
    kept: Path | None = None  # folder of the second run; None if it was removed


def plan(
    target: Path,
    wishes: Wishes,
    how: Manner,
    *,
    data_dir: str,
    source: str = "",
) -> Reproduction:
    """Read a run's manifest and decide how to repeat it.

    ``data_dir`` is the local copy of its data, ``source`` the run or file whose weights it began with.

    Raises IntegrityError if there is no manifest of a run, CheckError if it is not finished or if its folder or its
    environment does not match its record, PreflightError if it was made in more than one environment, UnsupportedError
    if this clone cannot repeat it, and UsageError if it is not known where one of these two is now.
    """
    folder = target.parent if target.name == FILE else target
    if is_unfinished(folder):
        raise CheckError(
            f"there is nothing to reproduce in {folder}",
            why=describe_unfinished(folder),
            remedy="resume it with the command that started it, and reproduce it when it is finished",
        )
    record = reader.read_record(folder)
    require(
        check_run(record),
        remedy=f"a run that does not match its record cannot be reproduced; for details: toolkit verify {folder}",
    )
    _require_one_environment(record)
    arguments = (*_choose_arguments(record), *_find_places(record, data_dir, source))
    resolved = _choose_environment(record, wishes, how)
    # A job with CUDA packages uses every GPU that it sees, so give GPUs only if the first run had such packages.
    cuda = any(name.startswith("nvidia-") for name in record.value.get("software", {}))
    if wishes.gpu is False:
        gpus.hide()
    if wishes.gpu and not cuda:
        raise UsageError(
            "a GPU was asked for, and the run was made by the CPU set",
            why="a second run gives the same weights only in the same software",
            remedy="leave out --gpu; to train on a GPU, begin a run of its own",
        )
    gpu = wishes.gpu if wishes.gpu is not None else cuda and resolved.engine.has_gpu()
    resolved = replace(resolved, chosen=replace(resolved.chosen, gpu=gpu))
    return Reproduction(record=record, arguments=arguments, resolved=resolved)


def _choose_arguments(record: RunRecord) -> list[str]:
    """Return the arguments that repeat a run: its configuration, and the recorded values of options left open."""
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
    recorded = {**record.environment, "kernels": reader.name_kernels(record.environment)}
    # Native kernels give the same bits with any number of threads, so the second run takes this machine's.
    kept = reader.OF_MACHINE if recorded["kernels"] == "native" else ()
    chosen = [name for name, unset in sorted(OPEN.items()) if getattr(config, name) == unset and name not in kept]
    options = [word for name in chosen for word in (f"--{name.replace('_', '-')}", str(recorded[name]))]
    return [config.dataset, "--config", str(file), *options]


def _require_one_environment(record: RunRecord) -> None:
    saved = reader.read_newest_state(record.folder)
    other = reader.compare_environments(saved.position["environment"], record.environment) if saved else ""
    if other:
        raise PreflightError(
            "the run was made in more than one environment, so none gives its weights again",
            why=f"it was resumed after step {', '.join(map(str, record.resumed))}, and there {other}",
            remedy="reproduce a run that was made in one environment",
        )


class _Place(NamedTuple):
    """A folder or file that a run read, and the options that say where it is now."""

    field: str  # of the configuration
    noun: str  # what messages call it
    option: str  # of `toolkit reproduce`
    passed: str  # the option of the training job


DATA: Final = _Place("data_dir", "a local copy of its data", "--data-dir", "--data-dir")
SOURCES: Final = (
    _Place("init_from", "the weights that it began with", "--source", "--init-from"),
    _Place("continue_from", "the run that it went on from", "--source", "--continue"),
)


def _find_places(record: RunRecord, data_dir: str, source: str) -> list[str]:
    arguments = _find(record, DATA, data_dir)
    begun = [place for place in SOURCES if record.config.get(place.field)]
    if source and not begun:
        raise UsageError("the run began with no weights of another run or file", remedy="leave out --source")
    for place in begun:
        if not str(record.config[place.field]).startswith(NAMED):  # else the job fetches it by its digest
            arguments += _find(record, place, source)
    return arguments


def _find(record: RunRecord, place: _Place, given: str) -> list[str]:
    recorded = str(record.config.get(place.field) or "")
    # A path recorded in a container is not a path of this machine.
    usable = recorded and record.parent.get("kind") != "image" and Path(recorded).exists()
    if recorded and not given and not usable:
        raise UsageError(
            f"the run read {place.noun}, and it is not known where that is now",
            why=f"the job read it from {recorded}",
            remedy=f"give it with {place.option}; the digest of what is read must be the recorded one",
        )
    path = given or (recorded if usable else "")
    return [place.passed, path] if path else []


def _choose_environment(record: RunRecord, wishes: Wishes, how: Manner) -> pipeline.ResolvedEnvironment:
    """Return the run's own environment if it exists here and the user asked for no other, else a plan for one."""
    link, settings = record.parent, wishes.settings
    named = wishes.wheel or any(settings.sources[name] == "flag" for name in ("engine", *VERSIONS))
    recorded = None if named else _find_recorded(link, settings)
    if recorded:
        engine, used = recorded
        how.console.heading(used.kind, f"the run's own {used.reference}")
        return pipeline.ResolvedEnvironment(
            chosen=keep(wishes), how=how, engine=engine, why="the run's own", plan=None, existing=used
        )
    if link and settings.sources["engine"] == "default":
        settings = replace(settings, engine="docker" if link.get("kind") == "image" else "host")
    settings = _take_tensorflow(record, settings)
    # Without --gpu, the first run decides whether the second gets GPUs, and not this machine.
    return pipeline.choose_environment(keep(replace(wishes, settings=settings, gpu=wishes.gpu or False)), how)


def _take_tensorflow(record: RunRecord, settings: Settings) -> Settings:
    """Return the settings with the TensorFlow of a run, unless another one was asked for or no set has it."""
    software = record.value.get("software") or {}
    version = str(software.get("tensorflow-cpu") or software.get("tensorflow") or "")
    named = settings.sources.get("tensorflow", "default") != "default" or settings.cuda
    known = any(item.tensorflow == version and not item.cuda for item in load_table().published)
    return replace(settings, tensorflow=version) if known and not named else settings


def _find_recorded(link: Mapping[str, Any], settings: Settings) -> tuple[Engine, Environment] | None:
    match link.get("kind"):
        case "environment":
            return _find_environment(link, settings)
        case "image":
            return _find_image(link, settings)
    return None


def _find_environment(link: Mapping[str, Any], settings: Settings) -> tuple[Engine, Environment] | None:
    artifact = records.find_named(link, Path(settings.state))
    if artifact is None or not host.interpreter(artifact.folder).exists():
        return None
    folder = artifact.folder
    seals.require_own(folder.parent)
    identity = str(link["digest"])
    if host.HostEngine.examine(folder, identity).doubt:
        return None  # it is made anew, which says why
    chain = records.compare(artifact)
    require(chain.list_findings(), remedy=f"remove {folder}: it is made again from the same locked set")
    used = Environment(kind="environment", digest=identity, reference=shorten(folder), folder=folder, reused=True)
    return engines.make_host_engine(settings), used


def _find_image(link: Mapping[str, Any], settings: Settings) -> tuple[Engine, Environment] | None:
    state = Path(settings.state)
    artifact = records.find_named(link, state)
    try:
        packer = find_packer(manifest.read(artifact.folder)) if artifact else None
        if artifact and packer and (packed := packer.find_made(artifact.folder)):
            seals.require_own(artifact.folder.parent)
            if not packer.examine(artifact.folder, packed.digest).doubt:
                packer.find_version()  # raises EngineError if it does not run here
                return packer(state, settings.archive), packed
        container, image = engines.adopt_image(settings, str(link["digest"]))
    except (UsageError, EngineError):
        return None
    # An image that was built on this machine has a record of its inputs; others have none.
    recorded = records.find_named({"kind": image.kind, "digest": image.digest}, state)
    return container, replace(image, folder=recorded.folder if recorded else image.folder)


def repeat(
    reproduction: Reproduction, console: Console, *, keep: bool = False, dry_run: bool = False
) -> Outcome | None:
    """Repeat a run and compare. ``keep``: keep the second run also if it is equal.

    Raises PreflightError if inputs differ, and JobError if the training fails.
    """
    if dry_run:
        tasks, _ = plan_tasks(reproduction, reproduction.choose_folder(), console)
        steps.run(tasks, console, dry_run=True)
        return None
    runs = Path(reproduction.resolved.chosen.settings.runs)
    files.require_writable(runs)
    # In a folder of its own, because in an existing one the job would resume the run that it finds.
    with files.stage(runs, digest.shorten(reproduction.record.value["config_sha256"])) as staging:
        try:
            tasks, compared = plan_tasks(reproduction, staging.path, console)
            steps.run(tasks, console)
        except KeyboardInterrupt:
            # The second run is never resumed: a resumed run would prove less.
            raise InterruptionError(
                "interrupted", remedy="The same command starts the second run from the beginning"
            ) from None
        outcome = compared.result
        if keep or not outcome.comparison.holds:
            outcome = replace(outcome, kept=_publish(reproduction, staging.path))
    return outcome


def _publish(reproduction: Reproduction, staged: Path) -> Path:
    name = next(staged.glob(f"*/{FILE}")).parent.name
    files.set_mode(staged, 0o755)
    while True:
        try:
            return staged.rename(reproduction.choose_folder()) / name
        except OSError as error:
            # Another command has taken the name since it was chosen, and a folder is not renamed onto a full one.
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise


def plan_tasks(reproduction: Reproduction, folder: Path, console: Console) -> tuple[list[Task[Any]], Task[Outcome]]:
    """Return the tasks (environment, probe, train, compare) and the last of them. ``folder`` gets the second run."""
    record, resolved = reproduction.record, reproduction.resolved
    config = training_job.read_arguments(reproduction.arguments, replace(resolved.chosen.settings, runs=str(folder)))
    prepared = pipeline.environment_task(resolved)
    job = plan_probe(reproduction.arguments, config, gpu=resolved.gpu)

    def check() -> None:
        console.heading("software", require_same_software(record, training_job.describe_parent(prepared.result)))
        for mount in job.mounts:
            if mount.writable:
                files.require_writable(mount.source)
        machine = probe(resolved.engine, prepared.result, job)
        reader.require_same_bits(record.environment, machine)
        console.heading("machine", describe_machine(machine))

    def compare() -> Outcome:
        second = reader.read_record(config.run_dir)
        compared = comparison.compare(record, second)
        links = comparison.walk(record, second, compared)
        return Outcome(comparison=compared, links=tuple(links), level=comparison.rank(links))

    commands = resolved.engine.commands(resolved.reference, job)
    checked = Task(Step(title="probe", commands=commands), check)
    trained = pipeline.train_task(resolved, prepared, reproduction.arguments, config)
    inputs = {"weights": f"sha256:{record.value['weights_sha256']}"}
    compared = Task(Step(title="compare", commands=(), inputs=inputs), compare)
    return [prepared, checked, trained, compared], compared


def require_same_software(record: RunRecord, now: Mapping[str, Any]) -> str:
    """Describe the wheel or locked set that a run and an environment share.

    Raises PreflightError if they share none.
    """
    recorded = flatten(record.parent)
    if not recorded:
        return "the run names no environment, so only the version of TensorFlow can be compared"
    known = {link["digest"] for link in recorded}
    shared = next((link for link in flatten(now) if link["digest"] in known), None)
    if shared:
        return f"the same {shared['kind']} {shared['digest']}"
    raise PreflightError(
        "this is not the software that the run was made with",
        why="; ".join(
            f"{name}: {', '.join(str(link['kind']) + ' ' + str(link['digest'])[:19] for link in links)}"
            for name, links in (("recorded", recorded), ("here", flatten(now)))
        ),
        remedy="give the --wheel, --tensorflow, --cuda and --cudnn of the first run, and its revision of this clone",
    )


def describe_machine(environment: Mapping[str, Any]) -> str:
    return f"{', '.join(environment['devices'])}; {environment['threads']} threads"


def plan_probe(arguments: Sequence[str], config: TrainConfig, *, gpu: bool) -> Job:
    """Return a job that runs ``probe.py`` as the training job would run: same arguments, mounts, network and GPUs."""
    job = training_job.plan(arguments, config, None, gpu=gpu)
    program = Mount(source=PROBE, target="/opt/toolkit/probe.py")
    mounts = (program, *(mount for mount in job.mounts if mount.source != config.run_dir))
    return replace(job, title="probe", argv=("-P", program, *job.argv[3:]), mounts=mounts, terminal=False)


def probe(engine: Engine, used: Environment, job: Job) -> dict[str, Any]:
    """Return what the training job would record.

    Raises UnsupportedError if it refuses the arguments, and JobError if it fails otherwise.
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
        raise JobError("examining the environment", code or 1, why="" if code else "it did not answer")
    return value


def describe_difference(record: RunRecord, outcome: Outcome) -> str:
    compared = outcome.comparison
    if compared.first:
        text = f"{compared.first}; the records before it, of {compared.compared}, are equal"
    elif compared.compared:
        text = f"all {compared.compared} records of steps and epochs are equal, only the weights differ"
    else:
        text = "the first run's records are not here, so the first difference cannot be found"
    others = [link.id for link in outcome.links if link.state == "fail" and link.id != "weights"]
    text += f"; these differ too: {', '.join(others)}" if others else ""
    resumed = ", ".join(map(str, record.resumed))
    return text + (f"; the first run was interrupted after step {resumed}" if resumed else "")


def summarize(record: RunRecord, outcome: Outcome) -> str:
    verdict = "the same weights to the bit" if outcome.comparison.equal else "other weights"
    verdict += ", but not the recorded numbers" if outcome.comparison.equal and outcome.comparison.first else ""
    kept = f"; the second run is kept in {shorten(outcome.kept)}" if outcome.kept else ""
    return f"{record.folder}: {outcome.level}, {verdict} after {record.result['steps']} steps{kept}"
