"""A run's newest checkpoint, read without TensorFlow and without NumPy, so that any machine can audit any run.

``train.checkpoint`` writes it: ``step-N.npz`` with the arrays, and ``step-N.json`` with their names, the position and a
digest over both. The weights are what is left of the arrays without what only the optimizer and the loop remember.
"""

import ast
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit.errors import IntegrityError

_SLOTS = "slots/"
_COUNTERS = frozenset({"step", "loss_scale", "steady", "skipped"})
_BAD = (OSError, ValueError, KeyError, TypeError, AttributeError, SyntaxError, zipfile.BadZipFile)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose bytes are those that were written.

    Attributes:
        name: of its arrays' file.
        names: of the variables, in the order of the arrays.
        position: where the run stood, as ``train.checkpoint.Position``.
        content: the archive of the arrays.
    """

    name: str
    names: tuple[str, ...]
    position: Mapping[str, Any]
    content: bytes


def read(folder: Path) -> Checkpoint | None:
    """The newest checkpoint of a folder, or None where there is none.

    Raises:
        IntegrityError: it is torn or altered.
    """
    records = sorted(folder.glob("step-*.json"))
    if not records:
        return None
    path = records[-1].with_suffix(".npz")
    try:
        facts = json.loads(records[-1].read_text(encoding="utf-8"))
        promised = facts.pop("sha256")
        content = path.read_bytes()
        state = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        state.update(content)
        names, position = tuple(facts["names"]), dict(facts["position"])
    except _BAD as error:
        raise IntegrityError(f"{path.name} cannot be read", why=str(error)) from error
    if state.hexdigest() != promised:
        raise IntegrityError(f"{path.name} is torn or altered: its digest does not match")
    return Checkpoint(name=path.name, names=names, position=position, content=content)


def digest_weights(checkpoint: Checkpoint) -> str:
    """SHA-256 of all weights and running averages as hexadecimal text: what ``train.state.digest_weights`` gives.

    Raises:
        IntegrityError: the arrays cannot be read.
    """
    state = hashlib.sha256()
    try:
        with zipfile.ZipFile(io.BytesIO(checkpoint.content)) as archive:
            if damaged := archive.testzip():
                raise IntegrityError(f"{damaged} in {checkpoint.name} is damaged", why="its checksum does not match")
            for name, index in sorted((name, index) for index, name in enumerate(checkpoint.names)):
                if name not in _COUNTERS and not name.startswith(_SLOTS):
                    kind, shape, data = _read_array(archive.read(f"{index:05d}.npy"))
                    state.update(f"{name}:{kind}:{shape};".encode())
                    state.update(data)
    except _BAD as error:
        raise IntegrityError(f"the arrays of {checkpoint.name} cannot be read", why=str(error)) from error
    return state.hexdigest()


def _read_array(data: bytes) -> tuple[str, tuple[int, ...], bytes]:
    """Type, shape and bytes of an array, after https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

    Raises:
        ValueError: it is none, or its bytes are not in C order.
    """
    if data[:6] != b"\x93NUMPY":
        raise ValueError("not an array")
    start = 10 if data[6] == 1 else 12
    end = start + int.from_bytes(data[8:start], "little")
    header = ast.literal_eval(data[start:end].decode())
    # As NumPy's ascontiguousarray, which knows no array without a dimension.
    shape = tuple(header["shape"]) or (1,)
    body = data[end:]
    size = int(header["descr"].lstrip("<>|=bcfiuV"))
    if header["fortran_order"] or len(body) != math.prod(shape) * size:
        raise ValueError("an array that is cut, or not in C order")
    return header["descr"], shape, body
