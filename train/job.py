"""The job from a configuration to a finished run folder."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train import budget, checkpoint, interruption, manifest, report, runtime
from train.checkpoint import Position
from train.config import TrainConfig
from train.data import Dataset, load
from train.errors import CheckError
from train.folder import opened
from train.progress import Display

if TYPE_CHECKING:
    from train.evaluation import Evaluation
    from train.loop import Loop


def run(config: TrainConfig) -> dict[str, Any]:
    """Train, or go on training; returns the manifest of the finished run.

    Raises:
        TrainError: one of its subclasses says what went wrong.
    """
    manifest.read_parent()  # a wrong one is refused before any work
    with interruption.listening() as requests:
        return _run(config, load(config), requests)


def _run(config: TrainConfig, dataset: Dataset, requests: interruption.Requests) -> dict[str, Any]:
    with opened(config) as folder:
        saved, problems = checkpoint.load(folder / "checkpoints")
        recorded = saved.position.environment if saved else {}
        threads = runtime.choose_threads(config, recorded.get("threads"))
        settled = budget.settle(config, recorded.get("batch_size", 0), threads, dataset.train)
        environment = runtime.prepare(threads) | {
            "batch_size": settled.batch_size,
            "data_sha256": dataset.digest,
            "mean": dataset.mean.tolist(),
            "std": dataset.std.tolist(),
        }
        display = Display(config.progress, min(settled.batch_size, len(dataset.train)))
        for problem in problems:
            display.say(f"checkpoint left out: {problem}")
        if problems and not saved:
            display.say("no good checkpoint is left: the run begins anew")
        loop = _make_loop(settled, dataset, folder, environment=environment, display=display, requests=requests)
        if saved:
            _resume(loop, saved, environment)
        watched = loop.run()
        evaluation = loop.evaluate(dataset.test) if dataset.validation else watched
        result = _describe(config, loop, evaluation, environment)
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
    environment: dict[str, Any],
    display: Display,
    requests: interruption.Requests,
) -> "Loop":
    # TensorFlow is loaded by now, with its threads pinned; before, these modules must not be imported.
    from train import optimizer, state, step
    from train.batches import Batches
    from train.loop import Loop
    from train.model.densenet import build, count_parameters

    rule, model = optimizer.choose(config), build(config)
    current = state.create(model, rule, initial_scale=2.0**15 if config.precision == "mixed_float16" else 1.0)
    batches = Batches(dataset, config)
    display.say(
        f"{config.dataset}: {len(dataset.train)} to train on, {len(dataset.test)} to test on, from {dataset.source}\n"
        f"{config.model}: {count_parameters(model):,} trainable parameters; {batches.total} steps of "
        f"{batches.size} images, {environment['threads']} threads"
    )
    report.draw_model(folder / "model.png", config)
    report.write_summary(folder / "model.txt", model)
    return Loop(
        config,
        batches,
        current,
        step.compile_train_step(step.make_train_step(current, rule, config, dataset.mean, dataset.std), config),
        step.compile_evaluation_step(step.make_evaluation_step(model, dataset.mean, dataset.std), config),
        folder,
        display,
        requests,
        Position(environment=environment),
    )


def _resume(loop: "Loop", saved: checkpoint.Checkpoint, environment: dict[str, Any]) -> None:
    _require_same(saved.position.environment, environment, loop.display)
    loop.state.write(saved.values)
    loop.position = replace(saved.position, resumed=[*saved.position.resumed, saved.position.step])
    loop.display.say(f"resumed after step {saved.position.step} of {loop.batches.total}")


def _describe(
    config: TrainConfig, loop: "Loop", evaluation: "Evaluation", environment: dict[str, Any]
) -> dict[str, Any]:
    from train.state import digest_weights

    position, dataset = loop.position, loop.batches.dataset
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
        },
        weights_sha256=digest_weights(loop.state.model),
        resumed_after=position.resumed,
        hardware={"devices": environment["devices"], "cores": runtime.count_cores()},
        environment=environment,
        data={"source": dataset.source, "sha256": dataset.digest},
    )


def _require_same(recorded: dict[str, Any], now: dict[str, Any], display: Display) -> None:
    """Refuse to go on with other data; say so when other software or hardware will change the last bits.

    Raises:
        CheckError: the data is not what the run began with.
    """
    if recorded["data_sha256"] != now["data_sha256"]:
        raise CheckError(
            "the data is not what this run began with",
            why=f"digest {now['data_sha256'][:12]} now, {recorded['data_sha256'][:12]} then",
            remedy="give the same --data-dir again, or begin a new run with another --out",
        )
    for name in ("threads", "devices", "tensorflow"):
        if recorded[name] != now[name]:
            display.say(
                f"note: {name} was {recorded[name]}, is {now[name]}; the last bits may differ from an unbroken run"
            )
