"""Keeps a Merkle tree over stretches of steps, so that a part of a run can be checked at a part of its cost.

A leaf, for one stretch, is a line of ``audit.jsonl``. It binds the first and the last step of the stretch, the digests
of the full state before and after it, its records, and the digests of configuration and data. The root of the tree is
in the run's manifest.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from train.errors import IntegrityError
from train.record import metrics, reader
from train.record.reader import RunRecord
from train.system.files import LARGEST_LINES, read_text, write_text, writing

FILE: Final = "audit.jsonl"

SUMS: Final = ("loss_sum", "correct", "seen", "best")
"""Parts of a position that later records depend on."""

FIELDS: Final = {"first": int, "last": int, "before": str, "after": str, "config": str, "data": str, "metrics": list}


def hash_tree(leaves: Sequence[str]) -> str:
    """Return the root of the Merkle tree over lines, as RFC 9162 computes it (section 2.1.1)."""
    return _join([hashlib.sha256(b"\0" + line.encode()).digest() for line in leaves]).hex()


def _join(hashes: Sequence[bytes]) -> bytes:
    """Return the root over the hashes of leaves. Nodes have another first byte, so no leaf passes for one."""
    if len(hashes) < 2:
        return hashes[0] if hashes else hashlib.sha256(b"").digest()
    middle = 1 << (len(hashes) - 1).bit_length() - 1  # the largest power of two below their number
    return hashlib.sha256(b"\1" + _join(hashes[:middle]) + _join(hashes[middle:])).digest()


def digest_progress(variables: str, position: Mapping[str, Any]) -> str:
    """Return the digest of the state from which a run goes on: the digest of its variables, and its sums."""
    return hashlib.sha256(_format([variables, *(position[name] for name in SUMS)]).encode()).hexdigest()


def _format(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def strip_times(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in reader.TIMES}


def read_lines(folder: Path) -> list[str]:
    """Return the lines of a run, or no lines without a file. Raises OSError or ValueError if it cannot be read."""
    file = folder / FILE
    return read_text(file, LARGEST_LINES).splitlines() if file.exists() else []


def parse(line: str) -> dict[str, Any]:
    """Read a leaf. Raises ValueError if the line is not one."""
    leaf = json.loads(line)
    if not isinstance(leaf, dict) or {name: type(value) for name, value in leaf.items()} != FIELDS:
        raise ValueError("not a leaf")
    return leaf


@dataclass
class Audit:
    """The leaves of a run in progress."""

    folder: Path
    every: int  # steps of a stretch
    lines: list[str] = field(default_factory=list)
    _first: int = 0
    _before: str = ""
    _records: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, variables: str, position: Mapping[str, Any]) -> None:
        """Keep the leaves up to a position, and begin the next leaf after the last of them.

        ``variables``: the digest of the variables at that position.
        """
        step, self.lines = position["step"], []
        self._first, self._before = step, digest_progress(variables, position)
        for line in read_lines(self.folder):
            try:
                leaf = parse(line)
            except ValueError:
                break  # a line that a crash has left incomplete
            if leaf["last"] > step:
                break
            self.lines.append(line)
            self._first, self._before = leaf["last"], leaf["after"]
        self._write()
        records = reader.read_lines(self.folder) if (self.folder / metrics.LINES).exists() else []
        self._records = [strip_times(record) for record in records if self._first < record["step"] <= step]

    def add_record(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        self._records.append(strip_times({"kind": kind, "step": step, **values}))

    def close(self, variables: str, position: Mapping[str, Any]) -> None:
        """Add the leaf of the stretch that ends at a position. If there is one already, replace it."""
        first, before, records = self._first, self._before, self._records
        last = parse(self.lines[-1]) if self.lines else {}
        if changed := last.get("last") == position["step"]:
            first, before, records = last["first"], last["before"], [*last["metrics"], *records]
            del self.lines[-1]
        after = digest_progress(variables, position)
        leaf = {
            "first": first,
            "last": position["step"],
            "before": before,
            "after": after,
            "config": position["config_sha256"],
            "data": position["environment"]["data_sha256"],
            "metrics": records,
        }
        self.lines.append(_format(leaf))
        self._first, self._before, self._records = position["step"], after, []
        if changed:
            self._write()
        else:
            with writing(self.folder / FILE), (self.folder / FILE).open("a", encoding="utf-8") as file:
                file.write(self.lines[-1] + "\n")

    def describe(self) -> dict[str, Any]:
        """Return the facts about the leaves for the manifest."""
        return {"every": self.every, "leaves": len(self.lines), "root": hash_tree(self.lines)}

    def _write(self) -> None:
        write_text(self.folder / FILE, "".join(line + "\n" for line in self.lines))


def check(record: RunRecord) -> str:
    """Compare the leaves of a finished run with its manifest, its metrics and its last checkpoint."""
    lines, stated = read_lines(record.folder), record.value["audit"]
    if (len(lines), hash_tree(lines)) != (stated["leaves"], stated["root"]):
        raise IntegrityError(f"{FILE} has {len(lines)} leaves with root {hash_tree(lines)}, and the manifest another")
    leaves = [parse(line) for line in lines]
    step, state = record.value.get("continued_after", 0), leaves[0]["before"]
    if step and not record.config.get("continue_sha256"):
        raise IntegrityError("the run says that it went on from another one, and its configuration names none")
    records = [strip_times(record_line) for record_line in reader.read_lines(record.folder)]
    origin = (record.value["config_sha256"], record.environment["data_sha256"])
    for leaf in leaves:
        if (leaf["first"], leaf["before"]) != (step, state) or leaf["last"] <= step:
            raise IntegrityError(f"the leaf after step {leaf['first']} does not begin where the one before it ends")
        if (leaf["config"], leaf["data"]) != origin:
            raise IntegrityError(f"the leaf after step {step} is of another configuration or of other data")
        step, state = leaf["last"], leaf["after"]
        if leaf["metrics"] != [record_line for record_line in records if leaf["first"] < record_line["step"] <= step]:
            raise IntegrityError(f"the records of steps {leaf['first'] + 1} to {step} are not those of their leaf")
    if step != record.result["steps"]:
        raise IntegrityError(f"the leaves end with step {step}, and the run with {record.result['steps']}")
    saved = reader.read_newest_state(record.folder)
    if saved and state != digest_progress(reader.digest_weights(saved, everything=True), saved.position):
        raise IntegrityError(f"{saved.path.name} does not hold the state of the last leaf")
    return f"{len(leaves)} stretches, root {stated['root']}"
