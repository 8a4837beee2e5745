"""Ends a run: evaluates it, draws its pictures, and writes its records, the manifest last."""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from train.config.configuration import TrainConfig
from train.cores import count_cores
from train.errors import UsageError
from train.record import reader
from train.report import card, gallery, plot
from train.step import runtime
from train.system import memory
from train.system.files import write_text

if TYPE_CHECKING:
    from train.run.loop import Loop
    from train.step.evaluation import Evaluation

PACKAGES: Final = re.compile(r"tensorflow(-cpu)?|keras|numpy|nvidia-(cudnn|cuda-runtime)(-cu\d+)?")


def conclude(
    config: TrainConfig,
    loop: "Loop",
    watched: "Evaluation",
    environment: Mapping[str, Any],
    oddities: Sequence[str],
) -> dict[str, Any]:
    """Evaluate a finished run, write its pictures and records, the manifest last, and return the manifest.

    ``config``: the configuration as it is recorded, in which the run's own choices are left open.
    """
    dataset, folder = loop.batches.dataset, loop.folder
    evaluation = loop.evaluate(dataset.test) if dataset.validation else watched
    result = _describe(config, loop, evaluation, environment, oddities)
    if dataset.validation:
        result["result"] |= {"validation_accuracy": watched.accuracy, "validation_loss": watched.loss}
    if loop.position.best:
        result["result"]["best_epoch"] = loop.position.best[0]
    plot.write_confusion(folder, evaluation.confusion, dataset.class_names)
    result["mistakes"] = gallery.draw_mistakes(
        folder, dataset.test, evaluation, dataset.class_names, loop.position.step
    )
    result["pictures"] = gallery.digest_files(folder, (reader.SAMPLES, reader.MISTAKES))
    result["drawn"] = gallery.digest_files(folder, reader.DRAWN)
    card.write(folder, result)
    write_text(folder / reader.MANIFEST, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def _describe(
    config: TrainConfig,
    loop: "Loop",
    evaluation: "Evaluation",
    environment: Mapping[str, Any],
    oddities: Sequence[str],
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
            **evaluation.describe_calibration(),
            "epochs": loop.epoch,
            "steps": position.step,
            "train_seconds": position.seconds,
            "first_step_seconds": loop.first_step_seconds,
            "process_peak_bytes": memory.read_peak(),
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
            "warnings": list(oddities),
            "notes": list(dataset.notes),
            "examples": {"train": len(dataset.train), "test": len(dataset.test)},
        },
    )


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
    versions = {"python": platform.python_version()}
    for package in metadata.distributions():
        name = str(package.name).replace("_", "-")
        if PACKAGES.fullmatch(name):
            versions.setdefault(name, package.version)
    return dict(sorted(versions.items()))


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
