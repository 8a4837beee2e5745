"""Plans the jobs that use a finished run. They see the run and what they read as read-only mounts."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkit.base import files
from toolkit.base.errors import JobError, UsageError
from toolkit.engine import Engine, Environment, Job, Mount, Network
from toolkit.jobs.training_job import HUB, RUNS, mount_data, mount_report
from train.config.configuration import TrainConfig
from train.config.origin import refuse_address
from train.record.reader import CONFIG, read_folder_config
from train.service.options import TIMEOUT, TOKEN, count_grace, is_loopback, read_token, require_guard
from train.system import signals

LOOPBACK: Final = {"localhost": "127.0.0.1"}
"""Addresses of names, which an engine does not take."""

MOST_IMAGES = 10_000
"""Images that one command line can name; the kernel limits its length."""


def mount_run(run: Path) -> Mount:
    """Return the mount of a run's folder. Raises a ToolkitError if it is not the folder of a run."""
    read_folder_config(run)
    return Mount(source=run, target=f"{RUNS}/{run.resolve().name}")


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What a job writes beside what it prints: results, a picture of each image, a list of images that are broken."""

    out: Path | None = None
    explain: Path | None = None
    report_broken: Path | None = None

    def plan(self) -> tuple[list[str | Mount], list[Mount]]:
        """Return the options of the job, and the mounts that they need."""
        options: list[str | Mount] = []
        mounts: list[Mount] = []
        for name, folder in (("explain", self.explain), ("out", self.out)):
            if folder:
                mounts.append(Mount(source=folder, target=f"/{name}", writable=True))
                options += [f"--{name}", mounts[-1]]
        report = mount_report(self.report_broken) if self.report_broken else []
        return [*options, *report[:2]], [*mounts, *(part for part in report[2:] if isinstance(part, Mount))]


def plan_prediction(
    run: Path,
    names: Sequence[str],
    listed: Sequence[str],
    options: Sequence[str],
    outputs: Outputs = Outputs(),
) -> Job:
    """Return the job that classifies images: files, all of a folder, and for ``-`` the `listed` ones."""
    names = [name for given in names for name in (listed if given == "-" else [given])]
    for name in names:
        refuse_address(name)
    if not names:
        raise UsageError("there are no images to classify", why="the list on standard input is empty")
    if len(names) > MOST_IMAGES:
        raise UsageError(
            f"{len(names)} images are too many for one command line",
            why=f"at most {MOST_IMAGES} can be named",
            remedy="give the folder that holds them",
        )
    if not run.is_dir() and (swapped := [name for name in names if (Path(name) / CONFIG).is_file()]):
        others = [str(run), *(name for name in names if name != swapped[0])]
        raise UsageError(
            "the run comes first, then the images",
            why=f"{swapped[0]} is the folder of a run, and {run} is not",
            remedy=f"toolkit predict {shlex.join([swapped[0], *others])}",
        )
    folder, parents = mount_run(run), dict[Path, Mount]()
    images = [_mount_image(Path(name), parents) for name in names]
    written, mounts = outputs.plan()
    return Job(
        title="predict",
        argv=("-P", "-m", "train", "predict", folder, *images, *options, *written),
        mounts=(folder, *parents.values(), *mounts),
    )


def _mount_image(path: Path, parents: dict[Path, Mount]) -> Mount:
    if path.is_symlink():
        path = path.resolve()
    parent = path if path.is_dir() else path.parent
    if not parent.is_dir():  # the job says that the file is missing
        return Mount(source=path, target=str(path))
    mount = parents.setdefault(parent, Mount(source=parent, target=f"/images/{len(parents)}"))
    return mount if path == parent else Mount(source=path, target=f"{mount.target}/{path.name}")


def plan_evaluation(run: Path, dataset: str, config: TrainConfig, outputs: Outputs, options: Sequence[str] = ()) -> Job:
    """Return the job that evaluates a run on the data of a configuration."""
    folder, data = mount_run(run), mount_data(config)
    dataset = f"./{config.dataset}" if dataset and config.data_sha256 else dataset  # in a container, another path
    written, mounts = outputs.plan()
    argv = ["-P", "-m", "train", "evaluate", folder, *filter(None, [dataset]), *data, *options, *written]
    mounts = [folder, *(part for part in data if isinstance(part, Mount)), *mounts]
    return Job(
        title="evaluate",
        argv=tuple(argv),
        mounts=tuple(mounts),
        network=config.needs_network,
        inherit=HUB if config.needs_network else (),
    )


def plan_export(run: Path, out: Path, formats: Sequence[str]) -> Job:
    """Return the job that exports a run into the folder `out`, which it replaces, so that it can write beside it."""
    folder, out = mount_run(run), out.absolute()
    place = Mount(source=out, target=f"/out/{out.name}")
    options = [word for name in formats for word in ("--format", name)]
    return Job(
        title="export",
        argv=("-P", "-m", "train", "export", folder, "--out", place, *options),
        mounts=(folder, Mount(source=out.parent, target="/out", writable=True)),
    )


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Where a run is served, and the limits of the server, as options of the job."""

    host: str
    port: int
    token_file: Path | None = None
    seconds: float = TIMEOUT  # for a request, and again for its answer
    options: tuple[str, ...] = ()


def plan_serving(run: Path, serving: Serving, network: Network) -> Job:
    """Return the job that serves the predictions of a run.

    A container has a network of its own, in which no other container is, and its port is published at the address.
    Raises a UsageError if others reach the address and there is no token.
    """
    token = read_token(serving.token_file)
    require_guard(serving.host, token, published=False)
    folder, mounts = mount_run(run), list[Mount]()
    argv: list[str | Mount] = ["-P", "-m", "train", "serve", folder, "--port", str(serving.port)]
    argv += ["--timeout", f"{serving.seconds:g}", *serving.options]
    if serving.token_file:
        mounts.append(Mount(source=serving.token_file, target="/token"))
        argv += ["--token-file", mounts[0]]
    contained = bool(network.name)
    if contained and is_loopback(serving.host):
        argv.append("--published")
    else:
        argv += ["--host", "0.0.0.0" if contained else serving.host]  # noqa: S104 - in a container, with a token
    return Job(
        title="serve",
        argv=tuple(argv),
        mounts=(folder, *mounts),
        own_network=network,
        inherit=(TOKEN,),
        published=(LOOPBACK.get(serving.host, serving.host), serving.port) if contained else None,
        grace=count_grace(serving.seconds),
    )


def serve(engine: Engine, environment: Environment, job: Job) -> None:
    """Run the job of `plan_serving` until it is asked to stop. Raises JobError if it ended by itself."""
    if job.own_network is None:
        raise ValueError("a server has a network")
    with engine.join(job.own_network):
        try:
            code = engine.run(environment, job)
        except KeyboardInterrupt:  # it was asked to stop, and has answered what it had taken
            signals.answer()
            return
    if code:
        raise JobError(job.title, code)


def run(engine: Engine, environment: Environment, job: Job, *, json_: bool) -> dict[str, Any]:
    """Run a job; returns the JSON object that it prints, or an empty one if it prints text, which goes to the user.

    The object of a job that failed has its exit code as `exit_code`. Raises JobError if it failed and printed none.
    """
    for mount in job.mounts:
        if mount.writable:
            files.require_writable(mount.source)
    lines: list[str] = []
    code = engine.run(environment, job, lines.append if json_ else None)
    value = find_object(lines)
    if code and not value:
        raise JobError(job.title, code)
    return value | ({"exit_code": code} if code else {})


def find_object(lines: Sequence[str]) -> dict[str, Any]:
    """Return the last line that is a JSON object; an empty object if there is none."""
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}
