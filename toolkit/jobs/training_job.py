import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from toolkit import diagnosis
from toolkit.base import digest, files, manifest, project
from toolkit.base.errors import JobError
from toolkit.base.manifest import FILE
from toolkit.base.project import shorten
from toolkit.engine import Engine, Environment, Job, Mount
from toolkit.records.run import PAGE
from toolkit.versions.settings import Settings
from train.command_line import find_config, parse
from train.config.configuration import TrainConfig
from train.errors import require_folder
from train.system.progress import Mode

GRACE_SECONDS = 60
"""Time in which a stopped job can finish a step and write a checkpoint, as in compose.yaml."""

RUNS = "/runs"

SHOWN = (PAGE, "curves.png", "metrics.csv", FILE)
"""Files of a run's folder that the command names at its end."""

HUB = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
"""Variables that the Hub's client reads: who the user is, and which server to ask."""


def read_arguments(arguments: Sequence[str], settings: Settings) -> TrainConfig:
    """Parse the job's arguments. Raises ToolkitError if one is invalid, or there is no folder of a local copy."""
    config = parse(["--out", settings.runs, "--cache-dir", settings.data, *arguments])
    if config.data_dir and not config.own:
        require_folder(Path(config.data_dir))
    return config


def plan(
    arguments: Sequence[str], config: TrainConfig, environment: Environment | None, *, gpu: bool, display: Mode = "auto"
) -> Job:
    """Return the training job; ``environment`` is recorded as the parent of the run, if it exists already.

    It can see no run but its own, so that simultaneous runs cannot change each other. It gets the network only if its
    data set or a sink of its records needs it, and the cache also for the user's own data, which may be unpacked there.
    """
    parent = describe_parent(environment) if environment else {}
    out = Mount(source=Path(config.out), target=RUNS)
    mounts = [Mount(source=config.run_dir, target=f"{RUNS}/{config.run_dir.name}", writable=True)]
    # -P: do not import a train.py of the current folder.
    data = mount_data(config)
    mounts += (part for part in data if isinstance(part, Mount))
    words = [f"./{config.dataset}", *arguments[1:]] if config.data_sha256 else arguments  # in a container, another path
    argv: list[str | Mount] = ["-P", "-m", "train", *words, "--out", out, *data]
    recorded = find_config(arguments)
    if recorded:
        mounts.append(Mount(source=recorded, target="/config.yaml"))
        argv += ["--config", mounts[-1]]
    if config.init_from and not config.fetches_weights:
        mounts.append(Mount(source=Path(config.init_from), target="/init"))
        argv += ["--init-from", mounts[-1]]
    if config.continue_from:
        mounts.append(Mount(source=Path(config.continue_from), target="/continued"))
        argv += ["--continue", mounts[-1]]
    if config.report_broken:
        *named, home = mount_report(Path(config.report_broken))
        mounts += [home] if isinstance(home, Mount) else []
        argv += named
    argv += ["--progress", display] if display != "auto" else []
    return Job(
        title="train",
        argv=tuple(argv),
        mounts=tuple(mounts),
        environment={"TOOLKIT_PARENT": json.dumps(parent, sort_keys=True)},
        network=config.needs_network or bool(config.log_to),
        inherit=HUB if config.needs_network else (),
        gpu=gpu,
        terminal=True,
        grace=GRACE_SECONDS,
        kept="the state is saved up to the last checkpoint, from which the same command goes on",
    )


def mount_data(config: TrainConfig) -> list[str | Mount]:
    """Return the options that name data and cache to the job, and their mounts; nothing for data of a package."""
    words: list[str | Mount] = []
    if config.data_dir:
        words += ["--data-dir", Mount(source=Path(config.data_dir), target="/local")]
    if config.data_dir or config.needs_network:
        words += ["--cache-dir", Mount(source=Path(config.cache_dir), target="/data", writable=True, shared=True)]
    return words


def mount_report(file: Path) -> list[str | Mount]:
    """Return the option that names a list of broken images to the job, and then the mount of the folder it lies in."""
    folder = Mount(source=file.absolute().parent, target="/report", writable=True)
    return ["--report-broken", Mount(source=file.absolute(), target=f"/report/{file.name}"), folder]


def run(
    engine: Engine,
    environment: Environment,
    job: Job,
    config: TrainConfig,
) -> dict[str, Any]:
    """Run the job, and return the run's manifest. Raises JobError, and PreflightError if a folder is read-only."""
    for mount in job.mounts:
        if mount.writable:
            files.require_writable(mount.source)
    before = _list_reports(config.run_dir)
    try:
        # The printed result is ignored, because the manifest has it too.
        code = engine.run(environment, job, lambda _line: None)
    finally:
        # A job that failed before it began leaves an empty folder.
        if not any(config.run_dir.iterdir()):
            config.run_dir.rmdir()
    result = files.read_json(config.run_dir / FILE)
    if code:
        raise _explain_failure(config.run_dir, code, before)
    if not isinstance(result, dict):
        raise JobError("training", 1, why=f"it succeeded but left no {FILE}")
    return result


def _list_reports(run_dir: Path) -> dict[Path, int]:
    """Return the tracebacks that jobs left, each with the time at which it was written."""
    return {path: path.stat().st_mtime_ns for path in sorted(run_dir.glob("failure*.txt"))}


def _explain_failure(run_dir: Path, code: int, before: dict[Path, int]) -> JobError:
    """Return the error of a job that failed, with the cause if a traceback that is new shows a known one."""
    for report, written in _list_reports(run_dir).items():
        if before.get(report) == written:
            continue
        if cause := diagnosis.explain(report.read_text(errors="replace")):
            again = "\nthe same command would fail again in the same way" if cause.row.repeats else ""
            return JobError("training", code, why=cause.cause, remedy=cause.advice + again)
    return JobError("training", code)


def describe_parent(environment: Environment) -> dict[str, Any]:
    """Return what a run records of its environment, so that it names its origin even after the environment was removed.

    ``code`` is the digest of the training job's files; it is None for an image, whose own digest covers them.
    """
    record = manifest.read(environment.folder)
    in_image = environment.kind == "image"
    return {
        "kind": environment.kind,
        "digest": environment.digest,
        "reference": environment.reference,
        "parent": dict(record.parent) if record and record.parent else None,
        "code": None if in_image else _digest_code(),
    }


@cache
def _digest_code() -> str:
    return digest.digest_paths(project.ROOT, [project.locate("train")])


def describe(config: TrainConfig, result: dict[str, Any]) -> str:
    numbers = result["result"]
    names = [name for name in SHOWN if (config.run_dir / name).exists()]
    return (
        f"test accuracy {numbers['test_accuracy']:.2%} after {numbers['epochs']} epochs, "
        f"{numbers['train_seconds']:.0f} s of training\n"
        f"run folder {shorten(config.run_dir)}: {', '.join(names)}"
    )
