"""Reads run folders without TensorFlow and NumPy: manifest, configuration, metrics and checkpoints.

Each check returns a text about what it compared. It raises an IntegrityError for a contradiction, and one of
`BAD_METRICS` for a damaged file.
"""

import ast
import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile, ZipFile

import yaml

from train.config.configuration import INCIDENTAL, WHITE, Kernels, TrainConfig, digest_fields
from train.config.presets import read_table
from train.config.resolution import resolve
from train.errors import DataError, IntegrityError, PreflightError, UsageError, require_there
from train.record import metrics
from train.record.metrics import EpochRecord
from train.system.files import LARGEST_LINES, LARGEST_STATE, read_regular, read_text

MANIFEST, CONFIG, CONFUSION, CHECKPOINTS = "manifest.json", "config.yaml", "confusion.csv", "checkpoints"
SAMPLES, MISTAKES = "samples.png", "mistakes.png"
CURVES, DRAWN = "curves.png", ("confusion.png", "model.png", "model.txt")
SCHEMA: Final = 1

SLOTS: Final = "slots/"
"""Prefix of the names of optimizer slots. All other names except `COUNTERS` are those of weights."""

COUNTERS: Final = ("step", "loss_scale", "steady", "skipped")

TIMES: Final = frozenset(
    {
        "seconds",
        "images_per_second",
        "train_seconds",
        "first_step_seconds",
        "device_peak_bytes",
        "process_peak_bytes",
    }
)
"""Recorded numbers that may differ between equal runs: times, and memory, which depends on other processes."""

DECISIVE: Final = ("threads", "devices", "tensorflow", "batch_size", "data_sha256")
"""Parts of the environment that the bits of a run depend on."""

KERNELS: Final = "kernels"
"""The part that holds the SHA-256 of the native kernels' source; environments with TensorFlow's kernels lack it."""

OF_MACHINE: Final = ("threads", "devices")
"""Decisive parts on which the bits of native kernels do not depend: number of threads, and processor."""

GIVE_RUN: Final = "give the folder of a finished run, as `toolkit train` leaves it"

STEM: Final = "step-" + "[0-9]" * 8
PARTS: Final = {"config": dict, "config_sha256": str, "result": dict, "weights_sha256": str, "environment": dict}
BAD_METRICS: Final = (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
"""Exceptions that reading damaged metrics can raise."""

BAD_CHECKPOINT: Final = (*BAD_METRICS, AttributeError, SyntaxError, BadZipFile)
"""Exceptions that reading a damaged checkpoint can raise."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The folder of a finished run and its manifest, a JSON object. Other files of the folder may be missing."""

    folder: Path
    value: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        return dict(self.value["config"])

    @property
    def result(self) -> Mapping[str, Any]:
        return dict(self.value["result"])

    @property
    def environment(self) -> Mapping[str, Any]:
        return dict(self.value["environment"])

    @property
    def resumed(self) -> tuple[int, ...]:
        return tuple(self.value.get("resumed_after") or ())

    @property
    def parent(self) -> Mapping[str, Any]:
        return dict(self.value.get("parent") or {})


def read_record(target: Path) -> RunRecord:
    """Read the manifest of a finished run, given its folder or the manifest's path.

    Raises a UsageError if nothing is there, and an IntegrityError if it is no such manifest.
    """
    folder = target.parent if target.name == MANIFEST else target
    require_there(folder, GIVE_RUN)
    try:
        value = json.loads(read_regular(folder / MANIFEST))
    except (OSError, ValueError, RecursionError):
        value = None
    number = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(value, dict) or number != SCHEMA or number is True or value.get("kind") != "run":
        raise IntegrityError(
            f"{folder} has no readable manifest of a run, of schema {SCHEMA}",
            remedy=GIVE_RUN,
        )
    lacking = [name for name, kind in PARTS.items() if not isinstance(value.get(name), kind)]
    if not isinstance(value.get("parent"), dict | None):
        lacking.append("a parent that is an object")
    if lacking:
        raise IntegrityError(f"the manifest of {folder} lacks {', '.join(lacking)}")
    return RunRecord(folder=folder, value=value)


class Run(NamedTuple):
    config: TrainConfig
    epochs: list[EpochRecord]


def read_run(folder: Path) -> Run:
    config = read_folder_config(folder)
    try:
        records = metrics.read_epochs(folder / metrics.CSV)
    except OSError as error:
        raise DataError(f"{folder} has no metrics of a run", why=str(error)) from error
    if not records:
        raise DataError(f"nothing to draw in {folder}", why="its first epoch is not over")
    return Run(config, records)


def read_folder_config(folder: Path) -> TrainConfig:
    """Read the configuration of a run. Raises a UsageError if nothing is there, and a DataError if it is no run."""
    require_there(folder, GIVE_RUN)
    try:
        return read_config(folder / CONFIG)
    except DataError as error:
        raise DataError(f"{folder} is not the folder of a run", why=error.why, remedy=GIVE_RUN) from error


def read_config(file: Path) -> TrainConfig:
    """Read a run's configuration from its ``config.yaml`` or ``manifest.json``; raises a DataError for other files."""
    try:
        text = read_text(file)
        try:
            values = json.loads(text)  # YAML would read 1e-05 as a text
        except ValueError:
            values = yaml.safe_load(text)
        if isinstance(values, dict) and values.get("kind") == "run":
            values = values["config"]
        return TrainConfig.from_dict(values)
    except (*BAD_CHECKPOINT, yaml.YAMLError, UsageError) as error:
        raise DataError(f"{file} is not the configuration of a run", why=str(error)) from error


def find_change(config: TrainConfig) -> str:
    """Return a note if the data has changed since an earlier run of this command; empty if this run has begun."""
    if not config.data_sha256 or config.run_dir.exists():
        return ""
    for file in sorted(config.run_dir.parent.glob(f"{config.run_dir.name[:-8]}*/{CONFIG}")):
        with suppress(DataError):
            other = read_config(file)
            if (
                other.dataset == config.dataset
                and replace(other, data_sha256=config.data_sha256).digest == config.digest
            ):
                return f"{config.dataset} has changed since {file.parent} began; this is a new run, in {config.run_dir}"
    return ""


def choose_data(
    run: Path, dataset: str, data_dir: str, cache_dir: str, files: Mapping[str, bool | str] = MappingProxyType({})
) -> TrainConfig:
    """Return the configuration of a run with the place of its data, or the configuration of another data set.

    `files` has options of a configuration about files that cannot be used; only those count that are given.
    """
    given: dict[str, Any] = {name: value for name, value in files.items() if value}
    config = read_folder_config(run)
    if dataset and dataset != config.dataset:
        # A user's own images are scaled to what the network takes.
        scaling = {} if dataset in read_table("datasets") else {"image_size": config.shape[0], "crop": config.crop}
        other = resolve(dataset, data_dir=data_dir, cache_dir=cache_dir, **scaling, **given)
        if not other.data_sha256 or other.data_sha256 != config.data_sha256:
            return other
        data_dir = other.data_dir  # the run's own data, by its path
    place = {"data_dir": data_dir or config.data_dir, "cache_dir": cache_dir, "init_from": "", "report_broken": ""}
    return replace(config, **(place | given))


@dataclass(frozen=True)
class Inputs:
    """What a model takes and what its outputs mean."""

    class_names: tuple[str, ...]
    shape: tuple[int, int, int]  # height, width and channels of an image of bytes
    mean: tuple[float, ...]  # mean, std: of its channels, in byte units
    std: tuple[float, ...]
    center: float  # share of the shorter side that ``train.data.images.fit`` keeps
    white: int = WHITE  # the value of white in images with this mean and deviation

    def for_white(self, white: int) -> "Inputs":
        """Return the same for images in which white has another value, so that the network sees the same brightness."""
        if white == self.white:
            return self
        mean, std = (tuple(value * white / self.white for value in values) for values in (self.mean, self.std))
        return replace(self, mean=mean, std=std, white=white)


def read_inputs(environment: Mapping[str, Any], config: TrainConfig) -> Inputs:
    """Read from the environment of a run, which its manifest and its checkpoints have. Needs no data set."""
    height, width, channels = environment["shape"]
    mean, std = (tuple(environment[name]) for name in ("mean", "std"))
    names = tuple(environment["class_names"])
    return Inputs(names, (height, width, channels), mean, std, environment["center"], config.white)


def check_config(record: RunRecord) -> str:
    recorded, computed = record.value["config_sha256"], digest_fields(record.config)
    if recorded != computed:
        raise IntegrityError(f"the manifest's configuration has digest {computed}, and it says {recorded}")
    try:
        written = yaml.safe_load(read_text(record.folder / CONFIG))
    except FileNotFoundError:
        return f"{recorded}; {CONFIG} is not here"
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise IntegrityError(f"{CONFIG} cannot be read: {error}") from error
    if not isinstance(written, dict):
        raise IntegrityError(f"{CONFIG} is no configuration")
    decisive = (written.keys() | record.config.keys()) - INCIDENTAL
    other = sorted(name for name in decisive if written.get(name) != record.config.get(name))
    if other:
        raise IntegrityError(f"{CONFIG} has another {', '.join(other)}")
    return str(recorded)


def compare_environments(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe which decisive parts of two environments differ; returns an empty text if none does."""
    native = before.get(KERNELS) and after.get(KERNELS)
    names = [name for name in (*DECISIVE, KERNELS) if not (native and name in OF_MACHINE)]
    pairs = ((name, before.get(name), after.get(name)) for name in names)
    return ", ".join(f"{name} is {now}, was {then}" for name, then, now in pairs if then != now)


def require_same_bits(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """Raise a PreflightError if environments give other bits. Native kernels allow other processors and threads."""
    other = compare_environments(before, after)
    if other:
        raise PreflightError(
            "the run cannot give the same bits here",
            why=other,
            remedy="equal bits are promised only for the same hardware, software and data; with --kernels native, for "
            "every x86-64 processor with AVX2 and for 64-bit ARM",
        )


def name_kernels(environment: Mapping[str, Any]) -> Kernels:
    return "native" if environment.get(KERNELS) else "stock"


def differ_in_machine(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return any(before.get(name) != after.get(name) for name in OF_MACHINE)


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Read the records of steps and epochs, in order; raises one of `BAD_METRICS` if they are damaged."""
    return [json.loads(line) for line in read_text(folder / metrics.LINES, LARGEST_LINES).splitlines()]


def check_epochs(record: RunRecord) -> str:
    result, lines = record.result, read_lines(record.folder)
    with io.StringIO(read_text(record.folder / metrics.CSV), newline="") as file:
        epochs = [metrics.parse_epoch(row) for row in csv.DictReader(file, strict=True)]
    if [epoch.epoch for epoch in epochs] != list(range(1, result["epochs"] + 1)):
        raise IntegrityError(f"{metrics.CSV} has {len(epochs)} epochs, the manifest says {result['epochs']}")
    # With a validation split, each epoch evaluates that split. The test split is then evaluated once, at the end.
    watched = "validation" if "validation_accuracy" in result else "test"
    last = epochs[-1]
    evaluated = epochs[int(result["best_epoch"]) - 1] if record.config.get("best") else last
    for name, in_csv, recorded in (
        ("steps", last.step, result["steps"]),
        ("accuracy", evaluated.test_accuracy, result[f"{watched}_accuracy"]),
        ("loss", evaluated.test_loss, result[f"{watched}_loss"]),
        ("seconds", last.seconds, result["train_seconds"]),
    ):
        if in_csv != recorded:
            which = "last" if evaluated is last else "best"
            raise IntegrityError(
                f"{name} of the {which} epoch is {in_csv} in {metrics.CSV}, {recorded} in the manifest"
            )
    drawn = [line for line in lines if line["kind"] == "epoch"]
    for epoch, line in zip(epochs, drawn, strict=False):
        if any(line[name] != value for name, value in asdict(epoch).items()):
            raise IntegrityError(f"epoch {epoch.epoch} of {metrics.CSV} is not that of {metrics.LINES}")
    if len(drawn) != len(epochs):
        raise IntegrityError(f"{metrics.LINES} has {len(drawn)} epochs, {metrics.CSV} has {len(epochs)}")
    count = f"{len(epochs)} epoch{'s' * (len(epochs) != 1)}"
    return f"{count}, {watched} accuracy {evaluated.test_accuracy:.2%} at the end, as in the manifest"


def check_confusion(record: RunRecord) -> str:
    with io.StringIO(read_text(record.folder / CONFUSION), newline="") as file:
        counts = [[int(value) for value in row[1:]] for row in list(csv.reader(file))[1:]]
    right = [row[index] for index, row in enumerate(counts)]
    total = sum(map(sum, counts))
    recorded = record.result["test_accuracy"]
    if not math.isclose(sum(right) / total, recorded, rel_tol=1e-12):
        raise IntegrityError(
            f"{sum(right)} of {total} recognized, which is not the manifest's test accuracy {recorded}"
        )
    shares = [value / sum(row) if sum(row) else None for value, row in zip(right, counts, strict=True)]
    if shares != record.result["per_class_accuracy"]:
        raise IntegrityError("the accuracy of a class is not that of the manifest")
    return f"{sum(right)} of {total} recognized, as in the manifest"


def check_pictures(record: RunRecord, field: str = "pictures") -> str:
    """Compare pictures and texts of a run with the digests that a field of the manifest has."""
    recorded = dict(record.value[field])
    for name, digest in recorded.items():
        if hashlib.sha256(read_regular(record.folder / name)).hexdigest() != digest:
            raise IntegrityError(f"{name} is not the one that the run left")
    return f"{', '.join(recorded)}, as in the manifest"


@dataclass(frozen=True)
class SavedState:
    """A checkpoint whose digest matches. `position` has the fields of ``train.record.checkpoint.Position``."""

    path: Path
    names: tuple[str, ...]
    position: Mapping[str, Any]
    content: bytes


def list_checkpoints(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{STEM}.json"), reverse=True)


def read_state(file: Path) -> SavedState:
    """Read a checkpoint, given its JSON file; raises one of `BAD_CHECKPOINT` if it is missing or damaged."""
    facts = json.loads(read_regular(file))
    promised = facts.pop("sha256")
    path = file.with_suffix(".npz")
    content = read_regular(path, LARGEST_STATE)
    if digest_state(facts, content) != promised:
        raise ValueError("its digest does not match: torn or altered")
    with ZipFile(io.BytesIO(content)) as archive:
        if sum(item.file_size for item in archive.infolist()) > len(content):
            raise ValueError("its arrays are packed, which those of a run are not")
    return SavedState(path, tuple(facts["names"]), dict(facts["position"]), content)


def read_newest_state(run: Path) -> SavedState | None:
    records = list_checkpoints(run / CHECKPOINTS)
    if not records:
        return None
    try:
        return read_state(records[0])
    except BAD_CHECKPOINT as error:
        raise IntegrityError(f"{records[0].stem}.npz cannot be read", why=str(error) or type(error).__name__) from error


def digest_state(facts: Mapping[str, Any], content: bytes | memoryview) -> str:
    state = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    state.update(content)
    return state.hexdigest()


def digest_weights(saved: SavedState, *, everything: bool = False) -> str:
    """Return the SHA-256 of a checkpoint's weights and running averages, equal to that of ``train.step.state.digest``.

    With `everything`, it is that of all variables, of the optimizer too.
    """
    state = hashlib.sha256()
    for name, kind, shape, data in read_arrays(saved):
        if everything or (name not in COUNTERS and not name.startswith(SLOTS)):
            state.update(describe_array(name, kind, shape))
            state.update(data)
    return state.hexdigest()


def read_arrays(saved: SavedState) -> Iterator[tuple[str, str, tuple[int, ...], bytes]]:
    """Yield name, type, shape and bytes of each array, by name; raises an IntegrityError if one cannot be read."""
    try:
        with ZipFile(io.BytesIO(saved.content)) as archive:
            if damaged := archive.testzip():
                raise IntegrityError(f"{damaged} in {saved.path.name} is damaged", why="its checksum does not match")
            for name, index in sorted((name, index) for index, name in enumerate(saved.names)):
                yield name, *_read_array(archive.read(f"{index:05d}.npy"))
    except BAD_CHECKPOINT as error:
        raise IntegrityError(f"the arrays of {saved.path.name} cannot be read", why=str(error)) from error


def describe_array(name: str, kind: str, shape: tuple[int, ...]) -> bytes:
    return f"{name}:{kind}:{shape};".encode()


def _read_array(data: bytes) -> tuple[str, tuple[int, ...], bytes]:
    """Return type, shape and bytes of an array in NumPy's format (numpy.org, "numpy.lib.format")."""
    if data[:6] != b"\x93NUMPY":
        raise ValueError("not an array")
    start = 10 if data[6] == 1 else 12
    end = start + int.from_bytes(data[8:start], "little")
    header = ast.literal_eval(data[start:end].decode())
    # NumPy's ascontiguousarray, which the digest uses, gives each array at least one dimension.
    shape = tuple(header["shape"]) or (1,)
    body = data[end:]
    size = int(header["descr"].lstrip("<>|=bcfiuV"))
    if header["fortran_order"] or len(body) != math.prod(shape) * size:
        raise ValueError("an array that is cut, or not in C order")
    return header["descr"], shape, body


COMPLETE: Final = "is complete; nothing to do (to train longer, give more --epochs)"


def find_result(config: TrainConfig) -> dict[str, Any] | None:
    """Return the manifest of a run of this configuration if it is complete."""
    try:
        path = config.run_dir / MANIFEST
        manifest = json.loads(read_regular(path)) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict) or manifest.get("config_sha256") != config.digest:
        return None
    return manifest if manifest.get("status") == "complete" else None
