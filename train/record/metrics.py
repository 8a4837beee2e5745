import contextlib
import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from train.errors import PreflightError
from train.system.files import LARGEST_LINES, read_regular, write_text, writing

CSV, LINES = "metrics.csv", "metrics.jsonl"


@dataclass(frozen=True)
class EpochRecord:
    """The numbers of an epoch: losses as means over examples, accuracies as shares, seconds of training so far."""

    epoch: int
    step: int
    learning_rate: float
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    images_per_second: float
    seconds: float


def read_epochs(path: Path) -> list[EpochRecord]:
    """Read ``metrics.csv`` without damaged lines, which a crash can leave; raises an OSError if it is missing."""
    records = []
    # Bytes that are not UTF-8 make their line damaged, not the whole file.
    content = read_regular(path, LARGEST_LINES).decode(errors="replace")
    with io.StringIO(content, newline="") as file, contextlib.suppress(csv.Error):
        for row in csv.DictReader(file):
            try:
                records.append(parse_epoch(row))
            except (KeyError, TypeError, ValueError):
                continue
    return records


def parse_epoch(row: dict[str, str]) -> EpochRecord:
    """Read one row of ``metrics.csv``; raises a KeyError, TypeError or ValueError if it is damaged."""
    kinds: dict[str, Any] = {field.name: field.type for field in fields(EpochRecord)}
    return EpochRecord(**{name: kind(row[name]) for name, kind in kinds.items()})


Listener = Callable[[str, int, Mapping[str, float]], None]
"""Takes each record: its kind, ``step`` or ``epoch``, the step, and its numbers by name."""


class Recorder:
    """Appends records to the files of a run, each at once. Methods raise a PreflightError if they cannot write.

    A resumed run repeats the steps after its checkpoint, so their old records are dropped. The files then equal those
    of an uninterrupted run, except for times.
    """

    def __init__(self, folder: Path, step: int, listener: Listener | None = None) -> None:
        import tensorflow as tf

        self._listener = listener
        self.folder, self.csv, self.jsonl = folder, folder / CSV, folder / LINES
        records = read_epochs(self.csv) if self.csv.exists() else []
        self.epochs = [record for record in records if record.step <= step]
        self._rewrite(step)
        with self._writing():
            self._board = tf.summary.create_file_writer(str(folder / "tb"), filename_suffix=f".from-{step}")
            self._lines = self.jsonl.open("a", encoding="utf-8", buffering=1)  # each line is one write

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        del kind, trace
        try:
            with self._writing():
                self._lines.close()
                self._board.close()
        except PreflightError:
            if error is None:  # else the error of the block is raised
                raise

    def add_step(self, step: int, **values: float) -> None:
        self._add("step", step, values)

    def add_epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)
        write_text(self.csv, _format_csv(self.epochs))
        values = asdict(record)
        self._add("epoch", values.pop("step"), values)

    def add_graph(self, function: Any, images: Any) -> None:
        import tensorflow as tf

        with self._writing(), self._board.as_default(step=0):
            tf.summary.graph(function.get_concrete_function(images).graph)

    def _add(self, kind: str, step: int, values: dict[str, Any]) -> None:
        import tensorflow as tf

        with self._writing(), self._board.as_default(step=step):
            self._lines.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
            for name, value in values.items():
                tf.summary.scalar(f"{kind}/{name}", value)
            self._board.flush()
        if self._listener:
            self._listener(kind, step, values)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        import tensorflow as tf

        return writing(self.folder, tf.errors.OpError)

    def _rewrite(self, step: int) -> None:
        lines = []
        if self.jsonl.exists():
            for line in self.jsonl.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    lines += [line + "\n"] if json.loads(line)["step"] <= step else []
                except (ValueError, KeyError, TypeError):
                    continue
        write_text(self.jsonl, "".join(lines))
        write_text(self.csv, _format_csv(self.epochs))


def add_picture(folder: Path, name: str, picture: Any, step: int) -> None:
    """Show a picture, (height, width, 3) as bytes, in TensorBoard; it replaces an earlier one of this name."""
    import tensorflow as tf

    with writing(folder, tf.errors.OpError):
        for old in (folder / "tb").glob(f"*.{name}"):
            old.unlink()
        board = tf.summary.create_file_writer(str(folder / "tb"), filename_suffix=f".{name}")
        with tf.device("CPU:0"), board.as_default(step=step):
            tf.summary.image(name, picture[None])
        board.close()


def _format_csv(records: list[EpochRecord]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(EpochRecord)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(record) for record in records)
    return text.getvalue()
