"""The same images as files and under a known name give the same weights, and files resume to the bit."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.makers.data_files import write_parquet
from train.cli import main
from train.command_line import parse
from train.config.presets import read_table
from train.data import Split, images, sources

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_drawing")]

ROOT = Path(__file__).parents[4]
CIFAR = ROOT.parent / "shared" / "data" / "cifar10"
NAMES = read_table("data/sources")["cifar10"]["names"]
COUNTS = {"train": 60, "test": 20}
"""Images of each class."""

OPTIONS = ("--depth", "10", "--recipe", "quick", "--epochs", "4", "--batch-size", "64", "--threads", "2")
OPTIONS += ("--checkpoint-every", "3", "--progress", "plain")


def read_pixels(split: str) -> Split:
    if not CIFAR.is_dir():
        whole = getattr(sources.load_digits(), split)
        grown = [images.center_crop(np.asarray(image * 15, np.uint8), (32, 32, 3)) for image in whole.images]
        return Split(np.stack(grown), whole.labels)
    import pyarrow.parquet as pq

    table = pq.read_table(next(CIFAR.rglob(f"{split}-*.parquet")))
    rows = table.slice(0, 3000).to_pylist()
    array = np.stack([np.asarray(Image.open(io.BytesIO(row["img"]["bytes"]))) for row in rows])
    return Split(array, np.array([row["label"] for row in rows], np.int32))


def order_by_class(split: Split, count: int) -> Split:
    return split.take(np.concatenate([np.flatnonzero(split.labels == label)[:count] for label in range(10)]))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("made")
    for name, count in COUNTS.items():
        split = order_by_class(read_pixels(name), count)
        write_parquet(folder / "tables", f"{name}-00000-of-00001.parquet", split, "img", "label")
        for number, (image, label) in enumerate(zip(split.images, split.labels, strict=True)):
            path = folder / "photos" / name / NAMES[label] / f"{number:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    return folder / "photos", folder / "tables"


def run(out: Path, dataset: str, *options: str) -> dict[str, Any]:
    arguments = [dataset, *OPTIONS, *options, "--out", str(out), "--cache-dir", str(out / "cache")]
    assert main(arguments) == 0
    manifest: dict[str, Any] = json.loads((parse(arguments).run_dir / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def test_files_give_the_weights_of_the_known_data_set(places: tuple[Path, Path], tmp_path: Path) -> None:
    photos, tables = places
    own, known = run(tmp_path, str(photos)), run(tmp_path, "cifar10", "--data-dir", str(tables))
    assert own["data"]["sha256"] == known["data"]["sha256"]
    assert own["weights_sha256"] == known["weights_sha256"]
    assert own["result"]["test_accuracy"] == known["result"]["test_accuracy"]
    assert own["environment"]["class_names"] == known["environment"]["class_names"]
