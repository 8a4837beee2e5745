"""The job from a configuration to a finished run folder."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train import budget, checkpoint, interruption, manifest, network, report, runtime
from train.checkpoint import Position
from train.config import TrainConfig
from train.cores import count_cores
from train.data import Dataset, describe_oddities, load
from train.folder import opened
from train.progress import Display

if TYPE_CHECKING:
    from train.evaluation import Evaluation
    from train.loop import Loop


def run(config: TrainConfig, *, close_network: bool = False) -> dict[str, Any]:
    """Train, or go on training; returns the manifest of the finished run.

    Args:
        config: what to do.
        close_network: take the network from this process, for good: before the data is loaded where none has to be
            fetched, and after it otherwise.

    Raises:
        TrainError: one of its subclasses says what went wrong.
    """
    manifest.read_parent()  # a wrong one is refused before any work
    display = Display(config.progress)
    with interruption.listening() as requests, display.speaking():
        if close_network and not config.needs_network:
            _close_network()
        display.begin("loading the data")
        dataset = load(config)
        if close_network and config.needs_network:
            _close_network()
        return _run(config, dataset, requests, display)


def _close_network() -> None:
    trouble = network.close()
    if trouble:
        print(f"note: the network stays open to this job: {trouble}", file=sys.stderr)


def _run(config: TrainConfig, dataset: Dataset, requests: interruption.Requests, display: Display) -> dict[str, Any]:
    oddities = describe_oddities(dataset)
    for oddity in oddities:
        display.warn(oddity)
    with opened(config) as folder:
        saved, problems = checkpoint.load(folder / "checkpoints")
        if saved:
            checkpoint.require_same_run(saved, config.digest, dataset.digest)
        recorded = saved.position.environment if saved else {}
        display.begin("preparing" if config.batch_size else "finding the batch size")
        threads = runtime.choose_threads(config, recorded.get("threads"))
        settled = budget.settle(config, recorded.get("batch_size", 0), threads, dataset.train)
        environment = runtime.prepare(threads, tf32=config.tf32) | {
            "batch_size": settled.batch_size,
            "data_sha256": dataset.digest,
            "mean": dataset.mean.tolist(),
            "std": dataset.std.tolist(),
        }
        display.batch_size = min(settled.batch_size, len(dataset.train))
        for problem in problems:
            display.say(f"checkpoint left out: {problem}")
        if problems and not saved:
            display.say("no good checkpoint is left: the run begins anew")
        position = Position(environment=environment, config_sha256=config.digest)
        loop = _make_loop(settled, dataset, folder, position=position, display=display, requests=requests)
        if saved:
            _resume(loop, saved, environment)
        display.begin("making the graph of the first step")
        watched = loop.run()
        evaluation = loop.evaluate(dataset.test) if dataset.validation else watched
        result = _describe(config, loop, evaluation, environment, oddities)
        if dataset.validation:
            result["result"] |= {"validation_accuracy": watched.accuracy, "validation_loss": watched.loss}
        report.write_confusion(folder, evaluation.confusion, dataset.class_names)
        manifest.write(folder, result)
        return result


def _make_loop(
    config: TrainConfig,
    dataset: Dataset,
    folder: Path,
    *,
    position: Position,
    display: Display,
    requests: interruption.Requests,
) -> "Loop":
    # TensorFlow is loaded by now, with its threads pinned; before, these modules must not be imported.
    from train import optimizer, state, step
    from train.batches import Batches
    from train.loop import Loop
    from train.model import formulation
    from train.model.densenet import build, count_parameters

    form = formulation.choose()
    rule, model = optimizer.choose(config), build(config, form)
    current = state.create(model, rule, initial_scale=2.0**15 if config.precision == "mixed_float16" else 1.0)
    batches = Batches(dataset, config)
    display.say(
        f"{config.dataset}: {len(dataset.train)} to train on, {len(dataset.test)} to test on, from {dataset.source}\n"
        f"{config.model}: {count_parameters(model):,} trainable parameters; {batches.total} steps of "
        f"{batches.size} images, {position.environment['threads']} threads"
    )
    report.draw_model(folder / "model.png", config)
    report.write_summary(folder / "model.txt", model)
    training = step.make_train_step(current, rule, config, dataset.mean, dataset.std, form=form)
    return Loop(
        config,
        batches,
        current,
        step.compile_train_step(training, config),
        step.compile_evaluation_step(step.make_evaluation_step(model, dataset.mean, dataset.std), config),
        folder,
        display,
        requests,
        position,
        late=form.asynchronous,
    )


def _resume(loop: "Loop", saved: checkpoint.Checkpoint, environment: dict[str, Any]) -> None:
    _note_changes(saved.position.environment, environment, loop.display)
    loop.state.write(saved.values)
    loop.position = replace(saved.position, resumed=[*saved.position.resumed, saved.position.step])
    loop.display.say(f"resumed after step {saved.position.step} of {loop.batches.total}")


def _describe(
    config: TrainConfig, loop: "Loop", evaluation: "Evaluation", environment: dict[str, Any], oddities: list[str]
) -> dict[str, Any]:
    from train.state import digest_weights

    position, dataset = loop.position, loop.batches.dataset
    peak = runtime.read_device_peak()
    return manifest.make(
        config,
        status="complete",
        result={
            "test_accuracy": evaluation.accuracy,
            "test_loss": evaluation.loss,
            "per_class_accuracy": report.per_class_accuracy(evaluation.confusion),
            "epochs": math.ceil(position.step / loop.batches.steps_per_epoch),
            "steps": position.step,
            "train_seconds": position.seconds,
            "first_step_seconds": loop.first_step_seconds,
            **({} if peak is None else {"device_peak_bytes": peak}),
        },
        weights_sha256=digest_weights(loop.state.model),
        resumed_after=position.resumed,
        hardware={"devices": environment["devices"], "cores": count_cores()},
        environment=environment,
        data={"source": dataset.source, "sha256": dataset.digest, "warnings": oddities},
    )


def _note_changes(recorded: dict[str, Any], now: dict[str, Any], display: Display) -> None:
    """Say so when other software or hardware will change the last bits."""
    for name in runtime.RECORDED:
        before, after = recorded.get(name, now.get(name)), now.get(name)  # older records have fewer
        if before != after:
            display.say(f"note: {name} was {before}, is {after}; the last bits may differ from an unbroken run")
