"""Whether a run folder still is what its manifest says: configuration, weights, metrics, and what they came from."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from toolkit.audit import checkpoint, metrics, parent
from toolkit.audit.checkpoint import Checkpoint
from toolkit.audit.record import RunRecord, read
from toolkit.errors import IntegrityError
from toolkit.findings import Finding, absent, check
from toolkit.manifest import FILE
from train.config import INCIDENTAL, digest_fields

CHECKPOINTS = "checkpoints"
EMULATED = "(emulated)"
"""Stands in the name of every emulated GPU: see ``train.emulation``."""

_DECISIVE = ("threads", "devices", "tensorflow", "batch_size", "data_sha256")


def verify(folder: Path, state: Path) -> list[Finding]:
    """Look at a run and at the chain behind it.

    Raises:
        IntegrityError: there is no manifest that this program understands, so there is nothing to compare with.
    """
    if is_unfinished(folder):
        return [check("manifest", False, describe_unfinished(folder))]
    record = read(folder)
    version = str(record.environment.get("tensorflow"))
    return [*verify_own(record), *parent.verify(record.parent, state, tensorflow=version)]


def is_unfinished(folder: Path) -> bool:
    """Whether a run began here and did not come to its end."""
    return not (folder / FILE).exists() and (folder / CHECKPOINTS).is_dir()


def describe_unfinished(folder: Path) -> str:
    """How far a run came that has no manifest."""
    try:
        found = checkpoint.read(folder / CHECKPOINTS)
    except IntegrityError as error:
        return f"the run is not finished, and {error.what}"
    return f"the run is not finished: its newest checkpoint is of step {found.position.get('step') if found else 0}"


def verify_own(record: RunRecord) -> list[Finding]:
    """What can be seen in the run's folder alone."""
    status = record.value.get("status")
    saved, findings = _read_checkpoint(record)
    return [
        check("manifest", status == "complete", f"schema {record.value['schema']}, {status}"),
        _check_config(record),
        *findings,
        _check_environment(record, saved),
        *_check_devices(record),
        *metrics.verify(record),
    ]


def _check_config(record: RunRecord) -> Finding:
    recorded, computed = record.value["config_sha256"], digest_fields(record.config)
    if recorded != computed:
        return check("config", False, f"the manifest's configuration has digest {computed}, and it says {recorded}")
    try:
        written = yaml.safe_load((record.folder / "config.yaml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return check("config", True, f"{recorded}; config.yaml is not here")
    except (OSError, ValueError, yaml.YAMLError) as error:
        return check("config", False, f"config.yaml cannot be read: {error}")
    if not isinstance(written, dict):
        return check("config", False, "config.yaml is no configuration")
    decisive = (written.keys() | record.config.keys()) - INCIDENTAL
    other = sorted(name for name in decisive if written.get(name) != record.config.get(name))
    return check("config", not other, f"config.yaml has another {', '.join(other)}" if other else recorded)


def _read_checkpoint(record: RunRecord) -> tuple[Checkpoint | None, list[Finding]]:
    """The last checkpoint, if its bytes are good, and findings ``checkpoint`` and ``weights``."""
    try:
        saved = checkpoint.read(record.folder / CHECKPOINTS)
    except IntegrityError as error:
        unread = absent("weights", "not read: the checkpoint that should hold them is damaged")
        return None, [check("checkpoint", False, f"{error.what}{': ' * bool(error.why)}{error.why}"), unread]
    if saved is None:
        unread = absent("weights", "not read: there is no checkpoint")
        return None, [absent("checkpoint", "there is no checkpoint here"), unread]
    run = saved.position.get("config_sha256")  # older checkpoints name none
    # A manifest whose digest and configuration disagree is the finding of another check.
    if run and run not in {record.value["config_sha256"], digest_fields(record.config)}:
        unread = absent("weights", "not read: the checkpoint is that of another run")
        return saved, [check("checkpoint", False, f"{saved.name} is of a run with configuration {run}"), unread]
    step, steps = saved.position.get("step"), record.result["steps"]
    bytes_ = check("checkpoint", step == steps, f"{saved.name} is of step {step}, the run ended after {steps}")
    if step != steps:
        return saved, [bytes_, absent("weights", "not read: the checkpoint is not that of the end")]
    recorded = record.value["weights_sha256"]
    try:
        found = checkpoint.digest_weights(saved)
    except IntegrityError as error:
        return saved, [bytes_, check("weights", False, f"{error.what}: {error.why}")]
    evidence = recorded if found == recorded else f"{found} in {saved.name}, {recorded} in the manifest"
    return saved, [bytes_, check("weights", found == recorded, evidence)]


def _check_environment(record: RunRecord, saved: Checkpoint | None) -> Finding:
    """The manifest and the checkpoint, which is kept under a digest, were written in the same circumstances."""
    if record.value.get("data", {}).get("sha256") != record.environment.get("data_sha256"):
        return check("environment", False, "the manifest has two digests of the data")
    if saved is None:
        return absent("environment", "no checkpoint to compare the manifest with")
    other = compare_environments(dict(saved.position.get("environment", {})), record.environment)
    if other and record.resumed:
        # Not wrong, for a run may go on elsewhere; but no single environment gives its weights.
        return check("environment", True, f"resumed after step {record.resumed[-1]} where {other}")
    text = ", ".join(f"{name} {record.environment.get(name)}" for name in ("threads", "tensorflow"))
    return check("environment", not other, f"checkpoint and manifest differ: {other}" if other else text)


def _check_devices(record: RunRecord) -> Iterator[Finding]:
    """A run on an emulated GPU (`toolkit rehearse`) has computed nothing, whatever else its record says."""
    names = [str(name) for name in record.environment.get("devices") or []]
    if any(EMULATED in name for name in names):
        yield check("device", False, f"the GPU was emulated and has computed nothing: {', '.join(names)}")


def compare_environments(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What decides the bits and is another, in words; empty where nothing is."""
    return ", ".join(_describe(before, after))


def _describe(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in _DECISIVE:
        if before.get(name) != after.get(name):
            yield f"{name} is {after.get(name)}, was {before.get(name)}"
