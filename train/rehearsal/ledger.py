"""Reads what the emulated GPU has counted in this process."""

import ctypes
import json
import tempfile
from pathlib import Path
from typing import Final

from train.errors import CheckError

Counts = dict[str, dict[str, int]]
"""Counts since the start of the process by group and name; the groups are those of ``native``."""

DIRECTIONS: Final = ("to device", "to host", "within device", "within host")


def read() -> Counts:
    """Read all counts so far.

    Raises:
        CheckError: the CUDA driver of this process is not the emulated one.
    """
    library = ctypes.CDLL("libcuda.so.1")
    if not hasattr(library, "nullgpu_write"):
        raise CheckError(
            "the CUDA driver here is not the emulated one", remedy="start a rehearsal by python -m train.rehearsal"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.json"
        if library.nullgpu_write(str(path).encode()):
            raise CheckError(f"the counts of the emulated GPU cannot be written to {folder}", remedy="free disk space")
        counts: Counts = json.loads(path.read_text(encoding="utf-8"))
    return counts


def subtract(later: Counts, earlier: Counts) -> Counts:
    """What was counted between two readings; names without a count are left out."""
    difference = {
        group: {name: count - earlier.get(group, {}).get(name, 0) for name, count in names.items()}
        for group, names in later.items()
    }
    return {group: {name: count for name, count in names.items() if count} for group, names in difference.items()}
