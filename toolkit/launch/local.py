"""Runs the workers of one training run side by side, by one engine on this machine.

Worker 0 has the terminal and the run folder. The output of the others goes to files.
"""

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from toolkit import pipeline, training_job
from toolkit.console import Console
from toolkit.engine import Cluster, Engine, Environment, Job, Stop, gpus
from toolkit.errors import GpuError, JobError, PreflightError
from toolkit.pipeline import ReadyEnvironment
from toolkit.steps import Task
from train.cluster.tf_config import describe
from train.config.configuration import TrainConfig

NOTICE_SECONDS = 20.0
"""Time for the other workers to end by themselves after one has ended: worker 0 notices, and says what it saved."""

TAIL_LINES = 15


def plan_task(
    resolved: ReadyEnvironment,
    prepared: Task[Environment],
    arguments: Sequence[str],
    config: TrainConfig,
    console: Console,
    *,
    workers: int,
) -> Task[dict[str, Any]]:
    """Return the task that trains with several workers, or that returns the manifest of a finished run.

    Raises PreflightError if there are fewer GPUs than workers, and GpuError if there are none.
    """
    if resolved.gpu and (count := len(list_gpus())) < workers:
        giver = "CUDA_VISIBLE_DEVICES grants" if "CUDA_VISIBLE_DEVICES" in os.environ else "this machine has"
        kind = PreflightError if count else GpuError
        raise kind(
            f"{workers} workers need a GPU each, and {giver} {count}",
            remedy=f"give --workers {count}, or --no-gpu" if count else "give --no-gpu",
        )
    engine = resolved.engine
    cluster = engine.plan_cluster(workers, outside=config.needs_network or bool(config.log_to))
    logs = Path(resolved.request.settings.state) / f"workers-{config.run_dir.name}"

    def run(engine: Engine, environment: Environment, job: Job, config: TrainConfig) -> dict[str, Any]:
        logs.mkdir(parents=True, exist_ok=True)
        with engine.join(cluster):
            group = LocalWorkers(engine, environment, divide(job, cluster, logs))
            return training_job.run(engine, environment, job, config, group.run)

    task = pipeline.train_task(resolved, prepared, arguments, config, console, run=run)
    single = training_job.plan(arguments, config, resolved.existing, gpu=resolved.gpu, display=console.mode)
    commands = [
        command
        for job in reversed(divide(single, cluster, logs))
        for command in engine.commands(resolved.reference, job)
    ]
    step = replace(task.step, commands=(*cluster.make, *commands, *cluster.remove))
    return Task(step, task.action)


def divide(job: Job, cluster: Cluster, logs: Path) -> list[Job]:
    """Return the job of each worker: all but the first see no run folder, and write to a file in ``logs``."""
    count, devices = len(cluster.addresses), list_gpus() if job.gpu else []
    alone = [mount for mount in job.mounts if mount.writable and not mount.shared]
    return [
        replace(
            job,
            title="train" if index == 0 else f"worker {index}",
            mounts=tuple(mount for mount in job.mounts if index == 0 or mount not in alone),
            environment={**job.environment, **describe(cluster.addresses, index)},
            cluster=cluster,
            index=index,
            device=devices[index] if job.gpu else "",
            log=logs / f"worker-{index}.log" if index else None,
            terminal=index == 0 and job.terminal,
        )
        for index in range(count)
    ]


def share_cores(cores: Sequence[int], count: int, index: int) -> tuple[int, ...]:
    """Return the cores of one of ``count`` workers: equal numbers, because stock kernels compute by the threads.

    Some cores may stay without a worker. Where there are fewer cores than workers, some workers get the same core.
    """
    if len(cores) < count:
        return (cores[index % len(cores)],)
    share = len(cores) // count
    return tuple(cores[index * share : (index + 1) * share])


def list_gpus() -> list[str]:
    """Return the GPUs that workers may use, by number or name: those of CUDA_VISIBLE_DEVICES, or all there are."""
    granted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if granted is None:
        return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
    return gpus.split(granted)


@dataclass
class LocalWorkers:
    """The running workers of one run. When one of them has ended, the others are ended too."""

    engine: Engine
    environment: Environment
    jobs: Sequence[Job]
    notice: float = NOTICE_SECONDS
    _cores: Sequence[int] = field(default_factory=lambda: sorted(os.sched_getaffinity(0)))
    _stops: dict[int, Stop] = field(default_factory=dict)
    _grace: float | None = None  # seconds that workers get to end, once they are asked to
    _lock: Lock = field(default_factory=Lock)
    _pool: ThreadPoolExecutor = field(init=False)

    def run(self) -> int:
        """Run all workers to their end, and return the exit code of worker 0.

        Raises JobError if another worker was the first to fail, and KeyboardInterrupt after all were asked to end.
        """
        # A thread for each worker, and two that may stop it.
        with ThreadPoolExecutor(3 * len(self.jobs)) as self._pool:
            running = {self._pool.submit(self._run, index): index for index in range(len(self.jobs))}
            try:
                return self._wait(running)
            except BaseException:
                self._stop(self.jobs[0].grace)
                try:
                    wait(running)
                except KeyboardInterrupt:
                    self._stop(0)
                raise

    def _run(self, index: int) -> int:
        # Of this thread: the process that it starts inherits the cores, and its container gets them.
        os.sched_setaffinity(0, share_cores(self._cores, len(self.jobs), index))
        # The printed result is ignored, because the manifest has it too.
        return self.engine.run(self.environment, self.jobs[index], lambda _line: None, partial(self._take, index))

    def _take(self, index: int, stop: Stop) -> None:
        with self._lock:
            self._stops[index] = stop
            if self._grace is not None:
                self._pool.submit(stop, self._grace)

    def _stop(self, grace: float) -> None:
        with self._lock:
            self._grace = grace
            for stop in self._stops.values():
                self._pool.submit(stop, grace)

    def _wait(self, running: dict[Future[int], int]) -> int:
        codes: dict[int, int] = {}
        failed: int | None = None
        ended: set[int] = set()  # workers that ended by themselves
        end = float("inf")
        while len(codes) < len(self.jobs):
            pending = [future for future, index in running.items() if index not in codes]
            limit = None if end == float("inf") else max(0.0, end - monotonic())
            done, _ = wait(pending, timeout=limit, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=running.__getitem__):
                index, code = running[future], future.result()
                codes[index] = code
                ended |= {index} if self._grace is None else set()
                failed = index if code and failed is None else failed
                if code or index == 0:
                    end = min(end, monotonic() + self.notice)
            if not done:
                self._stop(self.jobs[0].grace)
                end = float("inf")
        if failed and codes[0]:
            raise self._explain(failed, codes[failed], codes[0] if 0 in ended else codes[failed])
        return codes[0]

    def _explain(self, index: int, code: int, result: int) -> JobError:
        log = self.jobs[index].log
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:] if log else []
        message = "\n    ".join([f"worker {index} ended first, with exit code {code}; its last lines:", *lines])
        return JobError("training", result, why=f"{message}\n    the whole output is {log}")
