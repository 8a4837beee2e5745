"""Cuts the wheels that a card is tested with into pieces, for a machine that takes nothing but small files.

`python -m tools.kit FOLDER WHEEL...` writes pieces of at most 60 MB, their list with hashes, and `join.py`, which puts
them together there. The wheels are those of a locked set, as `pip download --no-deps -r FILE` leaves them, with the
wheel of the toolkit. A grafted TensorFlow takes the place of the published one.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MOST = 60_000_000
"""Bytes of a piece."""

JOIN = Path(__file__).with_name("join.py")
LIST = "pieces.json"


def cut(wheels: Sequence[Path], folder: Path, most: int = MOST) -> None:
    """Write pieces, list and join.py into a new folder. Raises FileExistsError if it is there."""
    folder.mkdir(parents=True)
    described = [_cut_one(wheel, folder, most) for wheel in sorted(wheels, key=lambda wheel: wheel.stat().st_size)]
    (folder / LIST).write_text(json.dumps({"schema": 1, "wheels": described}, indent=1) + "\n")
    shutil.copy(JOIN, folder)


def _cut_one(wheel: Path, folder: Path, most: int) -> dict[str, Any]:
    whole, pieces = hashlib.sha256(), []
    for number, content in enumerate(_read(wheel, most)):
        whole.update(content)
        name = f"{wheel.name}.{number:02}"
        (folder / name).write_bytes(content)
        pieces.append({"name": name, "sha256": hashlib.sha256(content).hexdigest()})
    return {"name": wheel.name, "sha256": whole.hexdigest(), "pieces": pieces}


def _read(path: Path, most: int) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while content := stream.read(most):
            yield content


if __name__ == "__main__":
    cut([Path(word) for word in sys.argv[2:]], Path(sys.argv[1]))
