"""Runs a training job, alone or as one of several workers.

:func:`run` loads the data. The chief, or the only worker, then takes the lead: it locks the folder of the run, finds
the state to begin with, sets up TensorFlow, makes the loop of steps, and at the end writes the manifest. The other
workers set up TensorFlow, take the chief's state, and compute their part of each step.
"""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from train.cluster import workers
from train.cluster.tf_config import Cluster, read_cluster
from train.config.configuration import TrainConfig
from train.config.resolution import complete
from train.data import Dataset, Pictures, describe_oddities, load
from train.errors import PreflightError, UsageError
from train.record import checkpoint, initial, reader
from train.record.checkpoint import Position
from train.report import card, gallery, plot
from train.run import conclusion, sinks
from train.run.display import Display, Forecast
from train.step import budget, kernel_choice, runtime
from train.system import network, output, signals
from train.system.files import sweep, write_text

if TYPE_CHECKING:
    from train.run.loop import Loop
    from train.step.optimizer import Rule
    from train.step.packing import Resident
    from train.step.state import State
    from train.step.training import TrainStep


@dataclass(frozen=True, eq=False)
class StartingPoint:
    """The state before the first step: that of a checkpoint, or initial weights, or a new one if neither is given."""

    saved: checkpoint.Checkpoint | None = None
    continued: bool = False  # whether the checkpoint is the last one of another run
    weights: initial.Weights | None = None

    @property
    def recorded(self) -> dict[str, Any]:
        """The facts that the checkpoint recorded."""
        return self.saved.position.environment if self.saved else {}


@dataclass(frozen=True, eq=False)
class Setup:
    """What all steps of a run share: its images, and its options with the choices that were made for this machine."""

    config: TrainConfig  # as it is recorded
    fixed: TrainConfig  # the same with the batch size and the kernels that were chosen
    dataset: Dataset
    threads: int
    environment: dict[str, Any]  # what is recorded of the machine and TensorFlow


def run(config: TrainConfig, *, close_network: bool = False, forecast: Forecast | None = None) -> dict[str, Any]:
    """Train, or resume a run, and return its manifest. A worker that is not the chief returns an empty one.

    With `close_network`, the process gives up the network once the data is loaded. ``forecast`` says how long the run
    takes. Raises a ToolkitError if the run fails.
    """
    conclusion.read_parent()  # an invalid one is refused before any work
    cluster = read_cluster()
    if cluster:
        cluster.divide(config.shards)
    is_chief = not cluster or cluster.is_chief
    display = Display(config.progress if is_chief else "quiet", form=config.log_format)
    with signals.listen() as stop, display.speaking():
        config, dataset = _load(config, display, is_chief=is_chief, close_network=close_network and not cluster)
        if is_chief:
            return _lead(config, dataset, cluster, stop=stop, display=display, forecast=forecast or Forecast())
        setup = _set_up(config, dataset, cluster, display, recorded={})
        with _connect(setup, cluster, stop, display) as (group, finished):
            if group and not finished:
                _serve_chief(setup, group, stop)
        return {}


def _load(config: TrainConfig, display: Display, *, is_chief: bool, close_network: bool) -> tuple[TrainConfig, Dataset]:
    """Load the data, and fetch everything else that comes by the network, before the network is closed.

    Returns the configuration, completed by facts that only the data tells, and the data.
    """
    if is_chief and (change := reader.find_change(config)):
        display.say(change)
    close_network = close_network and not config.log_to
    if close_network and not config.needs_network:
        _close_network()
    display.begin("loading the data")
    dataset = load(config)
    if is_chief:
        initial.fetch_weights(config)
    if close_network and config.needs_network:
        _close_network()
    for note in dataset.notes:
        display.say(note)
    if config.own:
        config = complete(config, dataset.train.images.shape[1:], dataset.class_names)
    return config, dataset


def _close_network() -> None:
    trouble = network.close_network()
    if trouble:
        output.say(f"note: the network stays open to this job: {trouble}")


def _lead(
    config: TrainConfig,
    dataset: Dataset,
    cluster: Cluster | None,
    *,
    stop: signals.StopSignal,
    display: Display,
    forecast: Forecast,
) -> dict[str, Any]:
    """Train, alone or as the chief, which writes the folder of the run."""
    oddities = describe_oddities(dataset)
    for oddity in oddities:
        display.warn(oddity)
    with lock_run_folder(config) as folder, sinks.sending(config, folder, display) as sent:
        start = _find_start(config, dataset, folder, display)
        setup = _set_up(config, dataset, cluster, display, recorded=start.recorded, weights=start.weights)
        environment = setup.environment | _describe_images(setup, cluster)
        position = Position(environment=environment, config_sha256=config.digest)
        with _connect(setup, cluster, stop, display) as (group, _):
            loop = _make_loop(setup, folder, position=position, display=display, stop=stop, group=group)
            plot.write_summary(folder / "model.txt", loop.state.model)
            _begin(loop, start, group)
            loop.after_first_step = partial(_draw_inputs, setup, loop, start, loop.position.step)
            loop.listener, loop.forecast = sent.add, forecast
            # A scheduler may end this worker soon after the others, which stay until its work is done.
            with workers.ending(loop.end, group):
                watched = loop.run()
                result = conclusion.conclude(config, loop, watched, environment, oddities)
                sent.finish(result["result"], [folder / name for name in (card.CARD, *card.PICTURES)])
        return result


@contextmanager
def lock_run_folder(config: TrainConfig) -> Iterator[Path]:
    """Create and lock a run's folder. Raises a PreflightError if it is not writable or another process trains in it."""
    folder = config.run_dir
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a")
    except OSError as error:
        raise PreflightError(
            f"cannot write to {folder}", why=error.strerror or str(error), remedy="choose another folder with --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PreflightError(
                f"another process trains in {folder}", remedy="wait for it, or change an option, such as --seed"
            ) from error
        except OSError as error:
            raise PreflightError(
                f"cannot lock {folder}",
                why=f"{error.strerror}: two processes could train in it at the same time",
                remedy="choose a folder on a file system with locks with --out, and copy the run later",
            ) from error
        for swept in (folder, folder / "checkpoints"):
            sweep(swept)
        write_text(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))
        yield folder


def _find_start(config: TrainConfig, dataset: Dataset, folder: Path, display: Display) -> StartingPoint:
    """Find the starting point of the run. Raises an IntegrityError if a checkpoint is of another run or other data."""
    saved, problems = checkpoint.load(folder / "checkpoints")
    continued = bool(config.continue_sha256 and not saved)
    saved = initial.load_state(config, folder) if continued else saved
    if saved:
        checkpoint.require_same_run(saved, config.digest, dataset.digest)
    display.begin("preparing" if config.batch_size else "finding the batch size")
    for problem in problems:
        display.say(f"checkpoint left out: {problem}")
    if problems and not saved:
        display.say("no good checkpoint is left: the run begins anew")
    return StartingPoint(saved, continued, initial.load_weights(config) if config.init_sha256 and not saved else None)


def _set_up(
    config: TrainConfig,
    dataset: Dataset,
    cluster: Cluster | None,
    display: Display,
    *,
    recorded: dict[str, Any],
    weights: initial.Weights | None = None,
) -> Setup:
    """Choose what the configuration leaves open, and set up TensorFlow.

    ``recorded``: the facts that an interrupted or finished run recorded, whose choices are made again. ``weights``:
    initial weights, whose mean and deviation the images are normalized by.
    """
    inputs = weights or (reader.read_inputs(recorded, config) if recorded and config.init_sha256 else None)
    if inputs and len(inputs.mean) == config.shape[-1]:
        dataset = _normalize_by(dataset, inputs.mean, inputs.std)
    threads = runtime.choose_threads(config, recorded.get("threads"))
    chosen, reason = kernel_choice.fix_kernels(config, recorded)
    if reason:
        display.say(reason)
    fixed = budget.fix_batch_size(chosen, recorded.get("batch_size", 0), threads, dataset.train)
    join_cluster = partial(workers.configure, cluster) if cluster else None
    environment = runtime.prepare(threads, tf32=config.tf32, kernels=fixed.kernels, connect=join_cluster)
    display.batch_size = min(fixed.batch_size, len(dataset.train))
    return Setup(config=config, fixed=fixed, dataset=dataset, threads=threads, environment=environment)


def _normalize_by(dataset: Dataset, mean: Sequence[float], std: Sequence[float]) -> Dataset:
    return replace(dataset, moments=(np.array(mean), np.array(std)), divided=False)


def _describe_images(setup: Setup, cluster: Cluster | None) -> dict[str, Any]:
    """Return what is recorded of the images, so that the network can be used without them."""
    dataset, config = setup.dataset, setup.config
    return {
        "batch_size": setup.fixed.batch_size,
        "data_sha256": dataset.digest,
        "mean": dataset.mean.tolist(),
        "std": dataset.std.tolist(),
        "class_names": list(dataset.class_names),
        "shape": list(config.shape),
        "center": config.center,
        **({"workers": len(cluster.addresses) if cluster else 1} if config.shards > 1 else {}),
    }


@contextmanager
def _connect(
    setup: Setup, cluster: Cluster | None, stop: signals.StopSignal, display: Display
) -> Iterator[tuple[workers.WorkerGroup | None, bool]]:
    """Wait for the other workers, if there are any. Yields the group of workers, and whether the run is finished."""
    if not cluster:
        yield None, False
        return
    group = workers.WorkerGroup(cluster, stop)
    display.begin("waiting for the other workers")
    digests = [setup.dataset.digest, setup.config.digest, workers.digest_code()]
    digests.append(workers.digest_environment(setup.environment))
    with group.connected(digests, threads=setup.threads) as finished:
        yield group, finished


def _make_loop(
    setup: Setup,
    folder: Path,
    *,
    position: Position,
    display: Display,
    stop: signals.StopSignal,
    group: workers.WorkerGroup | None,
) -> "Loop":
    """Build the network, its compiled step and the loop around it."""
    config, dataset = setup.fixed, setup.dataset
    # These modules import TensorFlow, whose threads must be set first. The caller has done that.
    from train.input.batches import Batches
    from train.model import formulation
    from train.model.densenet import count_parameters
    from train.run import shards
    from train.run.loop import Loop
    from train.step import evaluation, packing, training

    form = formulation.choose(config.kernels)
    sharded = shards.prepare(config, dataset, group) if config.shards > 1 else None
    current, rule = (sharded.state, sharded.rule) if sharded else training.start(config, form)
    model = current.model
    batches = sharded.choose_batches(dataset) if sharded else Batches(dataset, config)
    display.say(
        f"{config.dataset}: {len(dataset.train)} to train on, {len(dataset.test)} to test on, from {dataset.source}\n"
        f"{config.model}: {count_parameters(model):,} trainable parameters; {batches.total} steps of "
        f"{batches.size} images, {position.environment['threads']} threads"
        + (", native kernels" if form.native else "")
        + (f", {config.shards} shards on {len(group.cluster.addresses) if group else 1} workers" if sharded else "")
    )
    resident = None
    is_plain = not (isinstance(dataset.train.images, Pictures) or config.cutout or config.mixup or config.randaugment)
    if form.asynchronous and config.loop == "function" and is_plain and not sharded:
        resident = packing.keep(dataset, batches.augmentation, runtime.read_device_limit())
    if batches.size % config.accumulate:
        raise UsageError(f"--accumulate {config.accumulate} does not divide the batch of {batches.size} images")
    return Loop(
        config,
        batches,
        current,
        sharded or _compile_step(config, dataset, current, rule, resident),
        evaluation.compile_evaluation_step(
            evaluation.make_evaluation_step(model, dataset.mean, dataset.std, form=form), config
        ),
        folder,
        display,
        stop,
        position,
        late=form.asynchronous or isinstance(dataset.train.images, Pictures),
        resident=resident is not None,
        sharded=sharded,
    )


def _compile_step(
    config: TrainConfig, dataset: Dataset, state: "State", rule: "Rule", resident: "Resident | None"
) -> "TrainStep":
    from train.step import training

    weights = dataset.balance(config.classes) if config.class_weights == "balanced" else ()
    step = training.make_train_step(state, rule, config, dataset.mean, dataset.std, class_weights=weights)
    return training.compile_train_step(step, config, resident=resident)


def _begin(loop: "Loop", start: StartingPoint, group: workers.WorkerGroup | None) -> None:
    """Give all workers the state of the starting point."""
    environment, display = loop.position.environment, loop.display
    if start.saved:
        _resume(loop, start.saved, environment, continued=start.continued)
    elif start.weights:
        from train.step.state import assign_weights

        taken = assign_weights(loop.state.model, start.weights, loop.batches.dataset.class_names)
        loop.state.restart_averages()
        display.say(f"starts from {start.weights.origin}: {taken}")
    display.begin("making the graph of the first step")
    if group:
        group.broadcast(
            loop.state.read(), {name: environment[name] for name in ("mean", "std")} | {"step": loop.position.step}
        )


def _draw_inputs(setup: Setup, loop: "Loop", start: StartingPoint, step: int) -> None:
    """Draw the network and, unless the run was only interrupted, the images that step ``step`` got."""
    plot.draw_model(loop.folder / "model.png", setup.fixed)
    if start.continued or not start.saved:
        gallery.draw_samples(loop.folder, replace(loop.batches, rows=slice(None)), step)


def _resume(loop: "Loop", saved: checkpoint.Checkpoint, environment: dict[str, Any], *, continued: bool) -> None:
    names = runtime.RECORDED_NATIVE if loop.config.kernels == "native" else runtime.RECORDED
    _note_changes(saved.position.environment, environment, loop.display, names=names)
    loop.state.write(saved.values)
    step = saved.position.step
    if continued:
        initial.require_whole_epochs(step, loop.batches.steps_per_epoch)
        loop.position = saved.position
        loop.display.say(f"goes on from {loop.config.continue_from} after step {step} to {loop.batches.total}")
        return
    loop.position = replace(saved.position, resumed=[*saved.position.resumed, step])
    loop.display.say(f"resumed after step {step} of {loop.batches.total}")


def _note_changes(
    recorded: dict[str, Any], now: dict[str, Any], display: Display, *, names: Sequence[str] = runtime.RECORDED
) -> None:
    for name in names:
        before, after = recorded.get(name), now.get(name)
        if before != after:
            display.say(f"note: {name} was {before}, is {after}; the last bits may differ from an unbroken run")


def _serve_chief(setup: Setup, group: workers.WorkerGroup, stop: signals.StopSignal) -> None:
    """Run steps as a worker that is not the chief. It takes the chief's state, and has no folder."""
    from train.run import shards

    values, facts = group.broadcast({}, {})
    dataset = _normalize_by(setup.dataset, facts["mean"], facts["std"])
    sharded = shards.prepare(setup.fixed, dataset, group)
    sharded.state.write(values)
    shards.serve_chief(sharded, dataset, facts["step"], stop)
