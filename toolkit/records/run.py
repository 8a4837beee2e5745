"""Compares the folder of a training run with its record."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from toolkit.base import digest, files, manifest, naming, signing
from toolkit.base.errors import EngineError, IntegrityError, PreflightError, ToolkitError
from toolkit.base.findings import Finding, absent, check, skipped
from toolkit.base.signing import Statement
from toolkit.engine.packed import names_packed
from toolkit.records import origins
from toolkit.records.artifact import Artifact, Link
from toolkit.records.environment import Environment
from toolkit.records.image import Image, inspect
from toolkit.wheel import wheel_documents
from train.config.configuration import digest_fields
from train.record import metrics, reader
from train.record.reader import RunRecord, SavedState

PAGE: Final = "report.html"
"""The page in the folder of a run, as ``toolkit.report`` writes it."""

OTHERS, ADDED = "others", "added"
"""Names of the findings about files of a run that no record covers: those of the toolkit, and all else."""

_WRITTEN: Final = (
    PAGE,
    "README.md",
    reader.CURVES,
    "checkpoints/step-*",
    "tb/*",
    "export/*",
    "wandb/*",
    "*.id",
    "failure*.txt",
)
"""What the toolkit writes into the folder of a run, and the record does not cover."""


@dataclass(frozen=True, kw_only=True)
class Run(Artifact):
    """The folder of a training run."""

    kind = "run"
    noun = "run"
    title = "Run"
    home = "runs"
    marks = (reader.CHECKPOINTS, metrics.CSV)
    remedy = "`toolkit reproduce` runs it again; a copy of the folder may still be whole"

    @classmethod
    def recognizes(cls, folder: Path, record: object) -> bool:
        """Return whether a folder is that of a run, also of one that has not ended and so has no record."""
        if isinstance(record, dict) and isinstance(record.get("kind"), str):
            return super().recognizes(folder, record)
        return (folder / reader.CONFIG).exists()

    def summarize(self, record: object) -> str:
        match record:
            case {"status": "complete", "result": {"test_accuracy": float(), "epochs": int()} as result}:
                return f"complete: {_describe_result(result)}"
        progress = "no epoch"
        with suppress(OSError):
            if epochs_done := metrics.read_epochs(self.folder / metrics.CSV):
                progress = f"epoch {epochs_done[-1].epoch}, test accuracy {epochs_done[-1].test_accuracy:.2%}"
        try:
            running = files.is_locked(self.folder / ".lock")
        except PreflightError:  # where there are no locks, nothing tells whether it runs
            return f"not complete: {progress}"
        return f"{'running' if running else 'stopped'}: {progress}"

    def make_statement(self) -> Statement:
        record = reader.read_record(self.folder)
        pictures, drawn = (record.value.get(name) or {} for name in ("pictures", "drawn"))
        if not isinstance(pictures, dict) or not isinstance(drawn, dict):
            raise IntegrityError(f"the pictures in the manifest of {self.folder} are no object")
        names = [manifest.FILE, reader.CONFIG, metrics.CSV, metrics.LINES, reader.CONFUSION, reader.CURVES]
        names += [*pictures, *drawn]
        for newest in reader.list_checkpoints(self.folder / reader.CHECKPOINTS)[:1]:
            names += [
                newest.relative_to(self.folder).as_posix(),
                newest.with_suffix(".npz").relative_to(self.folder).as_posix(),
            ]
        return Statement(
            kind="run",
            subjects=digest.read_files(self.folder, [name for name in names if (self.folder / name).exists()]),
            predicate_type=wheel_documents.PREDICATE,
            predicate=origins.describe_making("train", record.config, record.parent, record.value["weights_sha256"]),
        )

    def find_tensorflow(self) -> str:
        return str(reader.read_record(self.folder).environment.get("tensorflow"))

    def check(self) -> list[Finding]:
        """Compare it with its record. Raises a ToolkitError if the folder has no readable manifest."""
        if is_unfinished(self.folder):
            words = ["--config", str(self.folder / reader.CONFIG), "--out", str(self.folder.parent)]
            remedy = f"train it to its end: give its command again, or `toolkit train {shlex.join(words)}`"
            return [replace(check("manifest", False, describe_unfinished(self.folder)), remedy=remedy)]
        return check_run(reader.read_record(self.folder))

    def list_parents(self) -> list[Link]:
        try:
            named = reader.read_record(self.folder).parent
        except ToolkitError:
            return []  # `check` says so
        kind = str(named.get("kind") or "")
        return [Link(kind=kind, named=named, damaged=kind if kind == Environment.kind else "")]

    def check_parent(self, parent: Link) -> list[Finding]:
        version = self.find_tensorflow()
        match parent.named.get("kind"):
            case None:
                parent.here = False
                return [absent("parent", "the run names none: it was started without the toolkit")]
            case "environment":
                return [_check_environment_named(parent, version)]
            case "image":
                return [_check_image_named(parent, self.state, version)]
            case other:
                return [check("parent", False, f"a run is not made in a {other}")]


def is_unfinished(folder: Path) -> bool:
    return not (folder / manifest.FILE).exists() and (folder / reader.CHECKPOINTS).is_dir()


def describe_unfinished(folder: Path) -> str:
    try:
        newest = reader.read_newest_state(folder)
    except IntegrityError as error:
        return f"the run is not finished, and {error.what}"
    step = newest.position.get("step") if newest else 0
    return f"the run is not finished: its newest checkpoint is of step {step}, and its command goes on from there"


def check_run(record: RunRecord) -> list[Finding]:
    status = record.value.get("status")
    saved, findings = _check_checkpoint(record)
    return [
        check("manifest", status == "complete", f"{_name_run(record)}, {status}"),
        _compare("config", reader.check_config, record),
        *findings,
        _check_environment(record, saved),
        _compare("metrics", reader.check_epochs, record, metrics.CSV, metrics.LINES),
        _compare("confusion", reader.check_confusion, record, reader.CONFUSION),
        *(_compare_files(name, record) for name in ("pictures", "drawn") if record.value.get(name)),
        *_list_others(record, saved),
    ]


def _name_run(record: RunRecord) -> str:
    """Return what a reader tells a run by, whatever its folder is called."""
    return (
        f"run {record.value['config_sha256'][:8]} of {record.value.get('dataset')}, {_describe_result(record.result)}"
    )


def _describe_result(result: Mapping[str, Any]) -> str:
    accuracy, epochs = result.get("test_accuracy"), result.get("epochs")
    share = f"{accuracy:.2%}" if isinstance(accuracy, float) else "not known"
    return f"test accuracy {share} after {epochs} epoch{'s' * (epochs != 1)}"


def _compare_files(field: str, record: RunRecord) -> Finding:
    recorded = record.value[field]
    names = recorded if isinstance(recorded, dict) else ()
    return _compare(field, lambda run: reader.check_pictures(run, field), record, *names)


def _list_others(record: RunRecord, saved: SavedState | None) -> list[Finding]:
    """Name the files of a run that are not compared with anything, such as its page: anyone may have written them."""
    covered = {manifest.FILE, reader.CONFIG, metrics.CSV, metrics.LINES, reader.CONFUSION, ".lock"}
    for field in ("pictures", "drawn"):
        covered |= set(recorded if isinstance(recorded := record.value.get(field), dict) else ())
    if saved:
        covered |= {str(path.relative_to(record.folder)) for path in (saved.path, saved.path.with_suffix(".json"))}
    if signing.locate(record.folder).exists():
        covered.add(reader.CURVES)  # a user may draw them anew, so only a signature covers them
    paths = (
        path.relative_to(record.folder)
        for path in sorted(record.folder.rglob("*"))
        if path.is_symlink() or not path.is_dir()
    )
    left = [path for path in paths if str(path) not in covered and path.name != signing.ENVELOPE]
    usual = [path for path in left if any(fnmatch(str(path), pattern) for pattern in _WRITTEN)]
    added = [path for path in left if path not in usual]
    found = []
    if usual:
        found = [skipped(OTHERS, f"no record covers them: {_name_files(usual)}")]
    if added:
        finding = check(ADDED, False, f"not covered by the record: {_name_files(added)}")
        remedy = "the toolkit does not write them: ask who added them, or remove them"
        found.append(replace(finding, remedy=remedy, advisory=True))
    return found


def _name_files(paths: Sequence[Path]) -> str:
    below = Counter(path.parts[0] for path in paths if len(path.parts) > 1)
    names = [path.name for path in paths if len(path.parts) == 1]
    return ", ".join([*names, *(f"{name}/ ({count} file{'s' * (count > 1)})" for name, count in below.items())])


def _compare(name: str, compare: Callable[[RunRecord], str], record: RunRecord, *needed: str) -> Finding:
    missing = [file for file in needed if not (record.folder / file).exists()]
    if missing:
        return absent(name, f"{', '.join(missing)} is not here")
    try:
        return check(name, True, compare(record))
    except IntegrityError as error:
        return check(name, False, error.what)
    except reader.BAD_METRICS as error:
        return check(name, False, f"cannot be read: {error}")


def _check_checkpoint(record: RunRecord) -> tuple[SavedState | None, list[Finding]]:
    try:
        saved = reader.read_newest_state(record.folder)
    except IntegrityError as error:
        unread = skipped("weights", "not read: the checkpoint that should hold them is damaged")
        return None, [check("checkpoint", False, f"{error.what}: {error.why}"), unread]
    if saved is None:
        unread = skipped("weights", "not read: there is no checkpoint")
        return None, [absent("checkpoint", "there is no checkpoint here"), unread]
    run = saved.position.get("config_sha256")
    # A manifest whose digest and configuration disagree fails as `config`, not here.
    if run not in {record.value["config_sha256"], digest_fields(record.config)}:
        unread = skipped("weights", "not read: the checkpoint is that of another run")
        return saved, [check("checkpoint", False, f"{saved.path.name} is of a run with configuration {run}"), unread]
    step, steps = saved.position.get("step"), record.result["steps"]
    last = check("checkpoint", step == steps, f"{saved.path.name} is of step {step}, the run ended after {steps}")
    if step != steps:
        return saved, [last, skipped("weights", "not read: the checkpoint is not that of the end")]
    recorded = record.value["weights_sha256"]
    try:
        weights = reader.digest_weights(saved)
    except IntegrityError as error:
        return saved, [last, check("weights", False, f"{error.what}: {error.why}")]
    evidence = recorded if weights == recorded else f"{weights} in {saved.path.name}, {recorded} in the manifest"
    return saved, [last, check("weights", weights == recorded, evidence)]


def _check_environment(record: RunRecord, saved: SavedState | None) -> Finding:
    if record.value.get("data", {}).get("sha256") != record.environment.get("data_sha256"):
        return check("environment", False, "the manifest has two digests of the data")
    if saved is None:
        return skipped("environment", "there is no checkpoint to compare the manifest with")
    other = reader.compare_environments(saved.position.get("environment", {}), record.environment)
    if other and record.resumed:
        # A run may be resumed in another environment, so a difference is no failure.
        return check("environment", True, f"resumed after step {record.resumed[-1]} where {other}")
    text = ", ".join(f"{name} {record.environment.get(name)}" for name in ("threads", "tensorflow"))
    return check("environment", not other, f"checkpoint and manifest differ: {other}" if other else text)


def _check_environment_named(parent: Link, used: str) -> Finding:
    identity = parent.named.get("digest")
    if parent.artifact is None:
        named = Path(str(parent.named.get("reference")))
        other = manifest.read(named)
        if other:
            return check("parent", False, f"{named} is {other.digest}, and the run names {identity}")
        return _miss_parent(f"environment {parent.named.get('reference')} {identity}")
    folder = parent.artifact.folder
    record = manifest.read(folder)
    version = _read_version((record.parent or {}).get("name", "")) if record else ""
    return _check_version(f"environment {identity} in {folder}", version, used)


def _check_image_named(parent: Link, state: Path, used: str) -> Finding:
    """Return whether the image that a run names is here. One of Docker is looked for in the engine."""
    identity, reference = str(parent.named.get("digest")), str(parent.named.get("reference"))
    name = f"image {reference} {identity}"
    if names_packed(reference):
        record = manifest.read(parent.artifact.folder) if parent.artifact else None
        if record is None:
            parent.here = False
            return _miss_parent(name)
        version = record.facts.get("labels", {}).get(f"{naming.LABEL_PREFIX}.tensorflow", "")
        return _check_version(f"image {identity}", version, used)
    try:
        image = inspect(identity)
        other = None if image else inspect(reference)
    except EngineError as error:
        parent.here = False
        return absent("parent", f"{name}: {error.what}")
    if image is None:
        parent.here = False
        if other:
            return check("parent", False, f"{reference} is {other.id} now, and the run names {identity}")
        return _miss_parent(name)
    if parent.artifact is None:
        parent.artifact = Image(folder=Path(), state=state, reference=identity)
        parent.parents = parent.artifact.list_parents()
    return _check_version(f"image {identity}", image.labels.get(f"{naming.LABEL_PREFIX}.tensorflow", ""), used)


def _miss_parent(name: str) -> Finding:
    remedy = "verify it where it was trained, or fetch that environment or image, with its folder in `.toolkit`, too"
    return replace(absent("parent", name), remedy=remedy)


def _check_version(name: str, version: str, used: str) -> Finding:
    # TensorFlow says its version without the local part, which a graft adds to that of the wheel: 2.21.0+sm120.
    if version and used not in {version, version.partition("+")[0]}:
        return check("parent", False, f"{name} holds TensorFlow {version}, and the run used {used}")
    return check("parent", True, name)


def _read_version(wheel: str) -> str:
    try:
        return str(parse_wheel_filename(wheel)[1])
    except InvalidWheelFilename:
        return ""
