"""Sends a run's records to MLflow or Weights & Biases, beside its own files.

Each sink works in a thread of its own. If it fails or does not answer, the run prints a warning and goes on. Sinks read
addresses and credentials from their own environment variables, which appear in no file or message.
"""

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from train.config.configuration import INCIDENTAL, TrainConfig
from train.run.display import Display
from train.system.files import write_text

WAIT_SECONDS: Final = 30.0
"""Longest time that the end of a run waits for a sink."""


class Sink(Protocol):
    run: str  # its name of the run

    def log(self, values: Mapping[str, float], step: int) -> None: ...
    def keep(self, file: Path) -> None: ...
    def end(self, *, complete: bool) -> None: ...


class Mlflow:
    """MLflow's tracking server or folder, which ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` name."""

    def __init__(self, name: str, run: str, config: TrainConfig) -> None:
        os.environ.setdefault(
            "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"
        )  # standard output is for the result of --json
        import mlflow

        self._entities, self._client = mlflow.entities, mlflow.MlflowClient()
        self.run = run or self._create(name, config)
        self._client.update_run(self.run, status="RUNNING")

    def _create(self, name: str, config: TrainConfig) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", config.dataset)
        existing = self._client.get_experiment_by_name(experiment)
        number = existing.experiment_id if existing else self._client.create_experiment(experiment)
        run = str(self._client.create_run(number, run_name=name).info.run_id)
        values = [self._entities.Param(key, str(value)) for key, value in describe(config).items()]
        self._client.log_batch(run, params=values)
        return run

    def log(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._entities.Metric(key, float(value), now, step) for key, value in values.items()]
        self._client.log_batch(self.run, metrics=metrics)

    def keep(self, file: Path) -> None:
        self._client.log_artifact(self.run, str(file))

    def end(self, *, complete: bool) -> None:
        self._client.set_terminated(self.run, "FINISHED" if complete else "KILLED")


class Wandb:
    """Weights & Biases, as ``WANDB_PROJECT``, ``WANDB_MODE`` and its login say; without a login, its offline mode."""

    def __init__(self, name: str, run: str, config: TrainConfig, folder: Path) -> None:
        import wandb

        self.run = run or uuid.uuid4().hex
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.api.api_key else "offline")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "toolkit"),
            id=self.run,
            name=name,
            resume="allow",
            mode=mode,
            dir=str(folder),
            config=describe(config),
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        self._image = wandb.Image

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def keep(self, file: Path) -> None:
        if file.suffix == ".png":
            self._run.summary[file.stem] = self._image(str(file))

    def end(self, *, complete: bool) -> None:
        self._run.finish(exit_code=0 if complete else 1)


def describe(config: TrainConfig) -> dict[str, Any]:
    """Return the fields of a configuration for a sink: those that decide the run, without paths of this machine."""
    fields = config.as_dict() | {"config_sha256": config.digest}
    return {name: value for name, value in fields.items() if name not in INCIDENTAL}


def _open(kind: str, folder: Path, config: TrainConfig) -> Sink:
    place = folder / f"{kind}.id"  # so that a resumed run goes on in the sink too
    run = place.read_text(encoding="utf-8").strip() if place.exists() else ""
    sink: Sink = Mlflow(folder.name, run, config) if kind == "mlflow" else Wandb(folder.name, run, config, folder)
    write_text(place, sink.run + "\n")
    return sink


Work = Callable[[Sink], None]


class Worker:
    """A thread that opens a sink and sends records to it, until the first failure."""

    def __init__(self, kind: str, make: Callable[[], Sink], warn: Callable[[str], None]) -> None:
        self.kind, self._make, self._warn = kind, make, warn
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name=kind, daemon=True)
        self._thread.start()

    def put(self, work: Work) -> None:
        if not self._failed:
            self._work.put(work)

    def close(self, seconds: float) -> None:
        self._work.put(None)
        if not self._failed:  # a thread that failed has ended, or was waited for already
            self._thread.join(seconds)
        if self._thread.is_alive() and not self._failed:
            self._fail(f"it did not answer within {seconds:.0f} seconds")

    def _run(self) -> None:
        try:
            sink = self._make()
            while work := self._work.get():
                work(sink)
        except ImportError:
            self._fail(f"it is not installed here: pip install {self.kind}")
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a sink does must not end the run
            # Only the class is named, because the text of an error can hold an address with a password.
            self._fail(type(error).__name__)

    def _fail(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            self._warn(f"{self.kind} gets no more records: {why}; the run itself goes on")


class Sinks:
    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers, self.complete = workers, False

    def _put(self, work: Work) -> None:
        for worker in self._workers:
            worker.put(work)

    def add(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        named = {f"{kind}/{name}": value for name, value in values.items()}
        self._put(lambda sink: sink.log(named, step))

    def finish(self, result: Mapping[str, Any], files: Sequence[Path]) -> None:
        """Send the results and pictures of a complete run, and wait for the sinks."""
        numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
        self.add("result", int(result["steps"]), numbers)
        for file in files:
            self._put(lambda sink, file=file: sink.keep(file))  # type: ignore[misc]
        self.complete = True
        self.close(WAIT_SECONDS)

    def close(self, seconds: float) -> None:
        self._put(lambda sink: sink.end(complete=self.complete))
        until = time.monotonic() + seconds
        for worker in self._workers:
            worker.close(max(0.1, until - time.monotonic()))


@contextmanager
def sending(config: TrainConfig, folder: Path, display: Display) -> Iterator[Sinks]:
    """While the block runs, send what is added to the sinks of a configuration; at its end, wait for them."""
    workers = [Worker(kind, lambda kind=kind: _open(kind, folder, config), display.warn) for kind in config.log_to]  # type: ignore[misc]
    sinks = Sinks(workers)
    try:
        yield sinks
    finally:
        sinks.close(WAIT_SECONDS)
