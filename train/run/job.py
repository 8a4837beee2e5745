import fcntl
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import yaml

from train.cluster import workers
from train.cluster.cluster import Cluster, read_cluster
from train.config.resolution import settle
from train.config.run import TrainConfig
from train.cores import count_cores
from train.data import Dataset, Pictures, describe_oddities, load
from train.errors import PreflightError, UsageError
from train.record import checkpoint, reader
from train.record.checkpoint import Position
from train.report import card, gallery, plot
from train.run import continuation, initial, sinks
from train.run.progress import Display
from train.step import budget, kernels, runtime
from train.system import process
from train.system.files import sweep, write_text

if TYPE_CHECKING:
    from train.run.loop import Loop
    from train.step.optimizer import Rule
    from train.step.parcels import Resident
    from train.step.state import State
    from train.step.step import Evaluation, TrainStep


def run(config: TrainConfig, *, close_network: bool = False) -> dict[str, Any]:
    """Train or resume; returns the manifest. `close_network` is called once the data is loaded. Raises a TrainError.

    A worker that is not the chief returns an empty manifest.
    """
    read_parent()  # an invalid one is refused before any work
    cluster = read_cluster()
    if cluster:
        cluster.share(config.shards)
    is_chief = not cluster or cluster.is_chief
    display = Display(config.progress if is_chief else "quiet")
    with process.listen() as stop, display.speaking():
        if is_chief and (change := reader.find_change(config)):
            display.say(change)
        close_network = close_network and not config.log_to and not cluster
        if close_network and not config.needs_network:
            _close_network()
        display.begin("loading the data")
        dataset = load(config)
        if cluster and not cluster.is_chief:
            return _follow(config, dataset, stop, cluster)
        initial.fetch(config)
        if close_network and config.needs_network:
            _close_network()
        return _run(config, dataset, stop, display, cluster=cluster)


def _close_network() -> None:
    trouble = process.close_network()
    if trouble:
        print(f"note: the network stays open to this job: {trouble}", file=sys.stderr)


def _run(
    config: TrainConfig,
    dataset: Dataset,
    stop: process.StopSignal,
    display: Display,
    *,
    cluster: Cluster | None,
) -> dict[str, Any]:
    config = settle(config, dataset.train.images.shape[1:], dataset.class_names) if config.own else config
    for note in dataset.notes:
        display.say(note)
    oddities = describe_oddities(dataset)
    for oddity in oddities:
        display.warn(oddity)
    with lock_run_folder(config) as folder, sinks.sending(config, folder, display) as sent, ExitStack() as stack:
        saved, problems = checkpoint.load(folder / "checkpoints")
        continued = bool(config.continue_sha256 and not saved)
        saved = continuation.load(config, folder) if continued else saved
        if saved:
            checkpoint.require_same_run(saved, config.digest, dataset.digest)
        recorded = saved.position.environment if saved else {}
        display.begin("preparing" if config.batch_size else "finding the batch size")
        start = initial.load(config) if config.init_sha256 and not saved else None
        known = start or (reader.read_inputs(recorded, config) if config.init_sha256 else None)
        if known and len(known.mean) == config.shape[-1]:
            dataset = replace(dataset, moments=(np.array(known.mean), np.array(known.std)), divided=False)
        threads = runtime.choose_threads(config, recorded.get("threads"))
        chosen, reason = kernels.fix_kernels(config, recorded)
        if reason:
            display.say(reason)
        fixed = budget.fix_batch_size(chosen, recorded.get("batch_size", 0), threads, dataset.train)
        connect = partial(workers.configure, cluster) if cluster else None
        environment = runtime.prepare(threads, tf32=config.tf32, kernels=fixed.kernels, connect=connect) | {
            "batch_size": fixed.batch_size,
            "data_sha256": dataset.digest,
            "mean": dataset.mean.tolist(),
            "std": dataset.std.tolist(),
            "class_names": list(dataset.class_names),
            "shape": list(config.shape),
            "center": config.center,
            **({"workers": len(cluster.addresses) if cluster else 1} if config.shards > 1 else {}),
        }
        display.batch_size = min(fixed.batch_size, len(dataset.train))
        for problem in problems:
            display.say(f"checkpoint left out: {problem}")
        if problems and not saved:
            display.say("no good checkpoint is left: the run begins anew")
        position = Position(environment=environment, config_sha256=config.digest)
        crew = workers.Crew(cluster, stop) if cluster else None
        if crew:
            display.begin("waiting for the other workers")
            stack.enter_context(crew.meeting(_list_digests(config, dataset, environment), threads=threads))
        loop = _make_loop(fixed, dataset, folder, position=position, display=display, stop=stop, crew=crew)
        if saved:
            _resume(loop, saved, environment, continued=continued)
        elif start:
            taken = initial.assign(loop.state.model, start, dataset.class_names)
            loop.state.restart_averages()
            display.say(f"starts from {start.origin}: {taken}")
        if continued or not saved:
            display.begin("drawing samples")
            gallery.draw_samples(folder, replace(loop.batches, rows=slice(None)), loop.position.step)
        display.begin("making the graph of the first step")
        loop.listener = sent.add
        if crew:
            crew.share(
                loop.state.read(), {name: environment[name] for name in ("mean", "std")} | {"step": loop.position.step}
            )
        # A scheduler may end this worker soon after the others, which stay until its work is done.
        with workers.ending(loop.end, crew):
            result = _conclude(config, loop, loop.run(), environment, oddities)
            sent.finish(result["result"], [folder / card.CARD, *(folder / name for name in card.PICTURES)])
        return result


def _list_digests(config: TrainConfig, dataset: Dataset, environment: dict[str, Any]) -> list[str]:
    return [dataset.digest, config.digest, workers.digest_code(), workers.digest_environment(environment)]


def _follow(config: TrainConfig, dataset: Dataset, stop: process.StopSignal, cluster: Cluster) -> dict[str, Any]:
    """Run steps as a worker that is not the chief: with the chief's state, and without a folder of its own."""
    config = settle(config, dataset.train.images.shape[1:], dataset.class_names) if config.own else config
    fixed = kernels.fix_kernels(config, {}).config
    threads = runtime.choose_threads(config, None)
    connect = partial(workers.configure, cluster)
    environment = runtime.prepare(threads, tf32=config.tf32, kernels=fixed.kernels, connect=connect)
    crew = workers.Crew(cluster, stop)
    with crew.meeting(_list_digests(config, dataset, environment), threads=threads) as done:
        if not done:
            from train.run import shards

            values, facts = crew.share({}, {})
            dataset = replace(dataset, moments=(np.array(facts["mean"]), np.array(facts["std"])), divided=False)
            training = shards.prepare(fixed, dataset, crew)
            training.state.write(values)
            shards.follow(training, dataset, facts["step"], stop)
    return {}


def _conclude(
    config: TrainConfig, loop: "Loop", watched: "Evaluation", environment: dict[str, Any], oddities: list[str]
) -> dict[str, Any]:
    """Write what a run leaves at its end, the manifest last, and return the manifest."""
    dataset, folder = loop.batches.dataset, loop.folder
    evaluation = loop.evaluate(dataset.test) if dataset.validation else watched
    result = _describe(config, loop, evaluation, environment, oddities)
    if dataset.validation:
        result["result"] |= {"validation_accuracy": watched.accuracy, "validation_loss": watched.loss}
    if loop.position.best:
        result["result"]["best_epoch"] = loop.position.best[0]
    plot.write_confusion(folder, evaluation.confusion, dataset.class_names)
    gallery.draw_mistakes(folder, dataset.test, evaluation, dataset.class_names, loop.position.step)
    result["pictures"] = gallery.digest_pictures(folder)
    card.write(folder, result)
    write_text(folder / reader.MANIFEST, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


@contextmanager
def lock_run_folder(config: TrainConfig) -> Iterator[Path]:
    """Create and lock a run's folder. Raises a PreflightError: not writable, or another process trains in it."""
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
        for each in (folder, folder / "checkpoints"):
            sweep(each)
        write_text(folder / "config.yaml", yaml.safe_dump(config.as_dict(), sort_keys=False))
        yield folder


def _make_loop(
    config: TrainConfig,
    dataset: Dataset,
    folder: Path,
    *,
    position: Position,
    display: Display,
    stop: process.StopSignal,
    crew: workers.Crew | None,
) -> "Loop":
    # These modules import TensorFlow, whose threads must be set first. The caller has done that.
    from train.input.batches import Batches
    from train.model import formulation
    from train.model.densenet import count_parameters
    from train.run import shards
    from train.run.loop import Loop
    from train.step import parcels, step

    form = formulation.choose(config.kernels)
    sharded = shards.prepare(config, dataset, crew) if config.shards > 1 else None
    current, rule = (sharded.state, sharded.rule) if sharded else step.start(config, form)
    model = current.model
    batches = sharded.choose_batches(dataset) if sharded else Batches(dataset, config)
    display.say(
        f"{config.dataset}: {len(dataset.train)} to train on, {len(dataset.test)} to test on, from {dataset.source}\n"
        f"{config.model}: {count_parameters(model):,} trainable parameters; {batches.total} steps of "
        f"{batches.size} images, {position.environment['threads']} threads"
        + (", native kernels" if form.native else "")
        + (f", {config.shards} shards on {len(crew.cluster.addresses) if crew else 1} workers" if sharded else "")
    )
    plot.draw_model(folder / "model.png", config)
    plot.write_summary(folder / "model.txt", model)
    resident = None
    is_plain = not (isinstance(dataset.train.images, Pictures) or config.cutout or config.mixup or config.randaugment)
    is_plain = is_plain and not sharded
    if form.asynchronous and config.loop == "function" and is_plain:
        resident = parcels.keep(dataset, batches.augmentation, runtime.read_device_limit())
    if batches.size % config.accumulate:
        raise UsageError(f"--accumulate {config.accumulate} does not divide the batch of {batches.size} images")
    return Loop(
        config,
        batches,
        current,
        sharded or _compile_step(config, dataset, current, rule, resident),
        step.compile_evaluation_step(step.make_evaluation_step(model, dataset.mean, dataset.std, form=form), config),
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
    from train.step import step

    weights = dataset.balance(config.classes) if config.class_weights == "balanced" else ()
    training = step.make_train_step(state, rule, config, dataset.mean, dataset.std, class_weights=weights)
    return step.compile_train_step(training, config, resident=resident)


def _resume(loop: "Loop", saved: checkpoint.Checkpoint, environment: dict[str, Any], *, continued: bool) -> None:
    names = runtime.RECORDED_NATIVE if loop.config.kernels == "native" else runtime.RECORDED
    _note_changes(saved.position.environment, environment, loop.display, names=names)
    loop.state.write(saved.values)
    step = saved.position.step
    if continued:
        continuation.require_whole_epochs(step, loop.batches.steps_per_epoch)
        loop.position = saved.position
        loop.display.say(f"goes on from {loop.config.continue_from} after step {step} to {loop.batches.total}")
        return
    loop.position = replace(saved.position, resumed=[*saved.position.resumed, step])
    loop.display.say(f"resumed after step {step} of {loop.batches.total}")


def _describe(
    config: TrainConfig, loop: "Loop", evaluation: "Evaluation", environment: dict[str, Any], oddities: list[str]
) -> dict[str, Any]:
    from train.step.state import digest_weights

    position, dataset = loop.position, loop.batches.dataset
    peak = runtime.read_device_peak()
    return make_manifest(
        config,
        status="complete",
        result={
            "test_accuracy": evaluation.accuracy,
            "test_loss": evaluation.loss,
            "per_class_accuracy": plot.per_class_accuracy(evaluation.confusion),
            "epochs": loop.epoch,
            "steps": position.step,
            "train_seconds": position.seconds,
            "first_step_seconds": loop.first_step_seconds,
            **({} if peak is None else {"device_peak_bytes": peak}),
        },
        weights_sha256=digest_weights(loop.state.weights),
        resumed_after=position.resumed,
        **({"continued_after": position.continued} if position.continued else {}),
        hardware={"devices": environment["devices"], "cores": count_cores()},
        environment=environment,
        data={
            "source": dataset.source,
            "sha256": dataset.digest,
            "warnings": oddities,
            "notes": list(dataset.notes),
            "examples": {"train": len(dataset.train), "test": len(dataset.test)},
        },
    )


def _note_changes(
    recorded: dict[str, Any], now: dict[str, Any], display: Display, *, names: Sequence[str] = runtime.RECORDED
) -> None:
    for name in names:
        before, after = recorded.get(name, now.get(name)), now.get(name)  # older records lack some names
        if before != after:
            display.say(f"note: {name} was {before}, is {after}; the last bits may differ from an unbroken run")


PACKAGES: Final = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12")


def read_parent() -> dict[str, Any] | None:
    """Return the description of the image or environment in TOOLKIT_PARENT, which the launcher sets, or None."""
    text = os.environ.get("TOOLKIT_PARENT", "")
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError("TOOLKIT_PARENT is not JSON", why=str(error)) from error
    if value is not None and not isinstance(value, dict):
        raise UsageError("TOOLKIT_PARENT must be a JSON object")
    return value


def describe_software() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def make_manifest(config: TrainConfig, *, status: str, **parts: Any) -> dict[str, Any]:
    return {
        "schema": reader.SCHEMA,
        "kind": "run",
        "status": status,
        "dataset": config.dataset,
        **parts,
        "parent": read_parent(),
        "software": describe_software(),
        "config_sha256": config.digest,
        "config": config.as_dict(),
    }
