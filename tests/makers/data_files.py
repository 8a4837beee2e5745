import gzip
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np

from train.data import Split

NUMBERS = np.random.default_rng(0)


def make_split(count: int, size: int = 32, channels: int = 3, classes: int = 10) -> Split:
    images = NUMBERS.integers(0, 256, (count, size, size, channels)).astype(np.uint8)
    return Split(images, NUMBERS.integers(0, classes, count).astype(np.int32))


def write_parquet(folder: Path, name: str, split: Split, image: str, *labels: str) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    def encode(array: Any) -> dict[str, Any]:
        file = io.BytesIO()
        Image.fromarray(array.squeeze()).save(file, "PNG")
        return {"bytes": file.getvalue(), "path": None}

    folder.mkdir(parents=True, exist_ok=True)
    columns = {image: [encode(array) for array in split.images], **{label: split.labels.tolist() for label in labels}}
    pq.write_table(pa.table(columns), folder / name)
    return folder / name


def assert_same(found: Split, expected: Split) -> None:
    assert np.array_equal(found.images, expected.images)
    assert np.array_equal(found.labels, expected.labels)


def write_idx(path: Path, array: Any, *, compress: bool) -> None:
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if compress else content)
