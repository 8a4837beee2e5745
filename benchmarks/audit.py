"""Forges a run on digits in many ways, and compares how often an audit finds it with the formula.

    python -m benchmarks.audit [--forgeries 1000] [--trained 6] [--replay 5]

Real parts alone: the run is trained and audited, forged runs have records that fit each other, and a forged stretch
counts as found only where training it again gives another leaf. What has been trained again once is not trained again.
"""

import argparse
import json
import math
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from toolkit.record import retraining
from train import cli
from train.config.configuration import TrainConfig
from train.input.batches import Batches
from train.record import audit, checkpoint, reader
from train.record.reader import RunRecord
from train.run.job import replay

EVERY: Final = 10
STEPS: Final = 440
SPANS: Final = [(step, step + EVERY) for step in range(0, STEPS, EVERY)]
ARGUMENTS: Final = ("digits", "--audit-every", str(EVERY), "--progress", "quiet")


@dataclass(frozen=True)
class Forgery:
    """A forged run, by its leaves, and for each stretch the leaf that training it again gives."""

    kind: str
    leaves: Sequence[str]
    again: Sequence[str]

    @property
    def forged(self) -> int:
        """How many stretches do not give their leaf."""
        return sum(one != two for one, two in zip(self.leaves, self.again, strict=True))

    def is_found(self, number: int, seed: str) -> bool:
        chosen = retraining.choose(len(self.leaves), number, seed)
        return any(self.leaves[index] != self.again[index] for index in chosen)


def make_line(leaf: Mapping[str, Any]) -> str:
    return json.dumps(leaf, sort_keys=True, separators=(",", ":"))


def repeat(config: TrainConfig, record: RunRecord, spans: Sequence[tuple[int, int]]) -> list[str]:
    with tempfile.TemporaryDirectory() as out:
        return [lines[-1] for lines in replay(replace(config, out=out, audit_every=0, keep=1), record, spans)]


def train_with(change: str, folder: Path, config: TrainConfig, begin: int) -> None:
    """Train a copied run again from a step, with a change in the first step after it, and honestly after that."""
    for file in (folder / "checkpoints").glob("step-*"):
        if int(file.stem[-8:]) > begin:
            file.unlink()
    (folder / "manifest.json").unlink()
    make, rate = Batches.make, Batches.rate

    def flip(batches: Batches, step: int) -> Any:
        images, labels = make(batches, step)
        if step == begin and change == "one label flipped":
            labels = labels.copy()
            labels[0] = (labels[0] + 1) % 10
        if step == begin and change == "one image swapped":
            images = images.copy()
            images[0] = images[1]
        return images, labels

    def quicken(batches: Batches, step: int) -> float:
        return rate(batches, step) * (1.01 if step == begin and change == "learning rate changed" else 1)

    with mock.patch.object(Batches, "make", flip), mock.patch.object(Batches, "rate", quicken):
        assert cli.main([*ARGUMENTS, "--out", str(folder.parent)]) == 0
    assert config.run_dir.name == folder.name


CHANGES: Final = ("one label flipped", "learning rate changed", "one image swapped")


def replace_states(folder: Path) -> list[str]:
    """Put a state from elsewhere after each stretch; return the digests."""
    found = []
    for _, step in SPANS:
        saved = checkpoint.read(folder, step)
        values = dict(saved.values)
        name = next(name for name in values if name.endswith("kernel"))
        values[name] = np.nextafter(values[name], np.float32(9))
        made = checkpoint.save(folder / "forged", values, saved.position, keep=1)
        for file in (made, made.with_suffix(".json")):
            shutil.move(file, folder / "checkpoints" / file.name)
        state = reader.read_state(folder / "checkpoints" / f"step-{step:08d}.json")
        found.append(audit.digest_progress(reader.digest_weights(state, everything=True), state.position))
    return found


class Forger:
    """An honest run, and what training its stretches again from honest and from forged states gives."""

    def __init__(self, root: Path, trained: int, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        assert cli.main([*ARGUMENTS, "--out", str(root / "honest")]) == 0
        self.config = cli.parse([*ARGUMENTS, "--out", str(root / "honest")])
        self.honest = audit.read_lines(self.config.run_dir)
        record = reader.read_record(self.config.run_dir)
        self.again = repeat(self.config, record, SPANS)
        elsewhere = self._copy(root / "elsewhere")
        self.states = replace_states(elsewhere)
        self.from_elsewhere = repeat(self.config, reader.read_record(elsewhere), SPANS)
        self.trained = [self._train(root / f"trained-{index}", CHANGES[index % 3]) for index in range(trained)]

    def _copy(self, out: Path) -> Path:
        return Path(shutil.copytree(self.config.run_dir, out / self.config.run_dir.name))

    def _train(self, out: Path, change: str) -> Forgery:
        """Forge by training: one step with a change, all others as they should be."""
        folder, begin = self._copy(out), EVERY * self.random.randrange(1, len(SPANS))
        train_with(change, folder, self.config, begin)
        record = reader.read_record(folder)
        audit.check(record)
        later = repeat(self.config, record, SPANS[begin // EVERY :])
        return Forgery(change, audit.read_lines(folder), [*self.again[: begin // EVERY], *later])

    def edit_metrics(self) -> Forgery:
        leaves = [audit.parse(line) for line in self.honest]
        for index in self.random.sample(range(len(leaves)), self.random.randint(1, 8)):
            leaves[index]["metrics"][-1]["loss" if len(leaves[index]["metrics"]) == 1 else "train_loss"] = 0.001
        return Forgery("metrics edited", list(map(make_line, leaves)), self.again)

    def move_states(self) -> Forgery:
        """Put states from elsewhere after some stretches, with leaves that fit."""
        leaves, again = [audit.parse(line) for line in self.honest], list(self.again)
        for index in self.random.sample(range(len(leaves)), self.random.randint(1, 4)):
            leaves[index]["after"] = self.states[index]
            if index + 1 < len(leaves):
                leaves[index + 1]["before"] = self.states[index]
                again[index + 1] = self.from_elsewhere[index + 1]
        return Forgery("state from elsewhere", list(map(make_line, leaves)), again)

    def end_elsewhere(self) -> Forgery:
        """Put a state from elsewhere at the end alone, as weights that were trained on the test images would be."""
        last = audit.parse(self.honest[-1]) | {"after": self.states[-1]}
        return Forgery("last state from elsewhere", [*self.honest[:-1], make_line(last)], self.again)

    def forge(self) -> Forgery:
        ways: list[Callable[[], Forgery]] = [self.edit_metrics, self.move_states, self.end_elsewhere]
        ways += [lambda: self.random.choice(self.trained)] * 2 if self.trained else []
        return self.random.choice(ways)()


@dataclass
class Row:
    """How many forgeries of a kind there were, how many were found, and how many the formula expects, with variance."""

    forgeries: int = 0
    stretches: int = 0
    found: int = 0
    expected: float = 0.0
    variance: float = 0.0

    @property
    def deviations(self) -> float:
        return (self.found - self.expected) / math.sqrt(self.variance) if self.variance else 0.0


def tabulate(forger: Forger, forgeries: int, number: int) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for index in range(forgeries):
        forgery = forger.forge()
        chance = 1 - retraining.miss(len(SPANS), number, forgery.forged)
        for name in (forgery.kind, "all"):
            row = rows.setdefault(name, Row())
            row.forgeries += 1
            row.stretches += forgery.forged
            row.found += forgery.is_found(number, f"forgery {index}")
            row.expected += chance
            row.variance += chance * (1 - chance)
    return rows


def render(rows: Mapping[str, Row]) -> Iterator[str]:
    yield "| forgery | runs | forged stretches, mean | found | formula | deviations |"
    yield "|---|---|---|---|---|---|"
    for name, row in rows.items():
        mean = row.stretches / row.forgeries
        share, expected = row.found / row.forgeries, row.expected / row.forgeries
        yield f"| {name} | {row.forgeries} | {mean:.2f} | {share:.1%} | {expected:.1%} | {row.deviations:+.1f} |"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forgeries", type=int, default=1000)
    parser.add_argument("--trained", type=int, default=6, help="runs forged by training")
    parser.add_argument("--replay", type=int, default=5, metavar="K")
    given = parser.parse_args(argv)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        forger = Forger(Path(folder), given.trained, 0)
    false = sum(one != two for one, two in zip(forger.honest, forger.again, strict=True))
    rows = tabulate(forger, given.forgeries, given.replay)
    print(*render(dict(sorted(rows.items(), key=lambda item: item[0] == "all"))), sep="\n")
    print(f"{false} of {len(SPANS)} stretches of the honest run gave other leaves; {time.process_time() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
