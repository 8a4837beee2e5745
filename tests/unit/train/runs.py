import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.threads import THREADS
from train.cli import main
from train.command_line import parse
from train.report import gallery, plot
from train.system.files import replacing

BATCH, STEPS, EPOCHS = 240, 5, 3
"""Images of a step, steps of an epoch, and epochs of a run."""

ARGUMENTS: tuple[str, ...] = (
    *("digits", "--depth", "10", "--epochs", str(EPOCHS), "--threads", str(THREADS), "--progress", "plain"),
    *("--batch-size", str(BATCH)),
)


def run(out: Path, *options: str) -> int:
    return main([*ARGUMENTS, *options, "--out", str(out)])


@contextmanager
def without_drawing() -> Iterator[None]:
    """Write bytes of about the same size instead of pictures, which take half of a small run's time."""

    def write(path: Path) -> None:
        with replacing(path) as file:
            file.write(b"\x89PNG\r\n" + bytes(40_000))

    sheet = np.zeros((8, 8, 3), np.uint8)
    with (
        mock.patch.object(plot, "draw_records", lambda _, __, path: write(path)),
        mock.patch.object(plot, "draw_model", lambda path, _: write(path)),
        mock.patch.object(plot, "_draw_confusion", lambda path, *_: write(path)),
        mock.patch.object(gallery, "render", return_value=sheet),
    ):
        yield


def make(out: Path, *options: str) -> Path:
    with without_drawing():
        assert run(out, *options) == 0
    return find_folder(out, *options)


def find_folder(out: Path, *options: str) -> Path:
    return parse([*ARGUMENTS, *options, "--out", str(out)]).run_dir


def read_manifest(out: Path, *options: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((find_folder(out, *options) / "manifest.json").read_text(encoding="utf-8"))
    return value


def read_digest(out: Path, *options: str) -> str:
    return str(read_manifest(out, *options)["weights_sha256"])


def read_lines(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: line[name] for name in line if name not in {"seconds", "images_per_second"}} for line in lines]
