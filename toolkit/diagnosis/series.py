"""Judges the losses that a program prints while it trains, as one series of numbers.

Programs print them as `loss: 0.3`, `loss=0.3`, `loss = 0.3, step = 100` and the like, each with the number of its epoch
or step. Where it is not one loss that is to fall, nothing is said: in adversarial and in reinforcement learning, of
losses that are negative, and while a learning rate is looked for. Beside an accuracy a loss is one of classes, which is
never negative where all goes well. A loop of trainings of one epoch each ("Epoch 1/1") is one training as far as its
loss grows. Whether that stays is not judged, as each may be of another model.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from toolkit.diagnosis.reading import Block

_WHOLE: Final = 4 << 20
"""Bytes of a log of which each line is read."""
_TAIL: Final = 8 << 10
"""Bytes that are read of each later block."""
_MOST: Final = 256
"""Numbers that are kept of a series: of more, each second one."""
_LONGEST: Final = 1000
"""Bytes that are read of a line."""
_NUMBERED: Final = 16
"""Bytes in which an epoch stands with its number."""
_ALL: Final = 100
_EACH: Final = 32
"""Of the lines of one epoch, all are read up to a number, then each of so many, and the last."""
_NAMES: Final = 8
"""Series that are kept of a log."""
_GROWTH: Final = 100
"""Factor by which the last losses must exceed the first ones."""
_LARGE: Final = 10
"""Loss below which growth may be noise."""
_UNSCALED: Final = 1000
"""Loss from which on the squares of inputs or targets that nobody scaled are the reason."""
_EPOCHS: Final = 3
"""Epochs that show growth."""
_STEPS: Final = 10
"""Losses that show growth where no epochs are told."""
_STILL: Final = 8
"""Epochs in which a loss that learns changes its last digit."""
_GUESSED: Final = 5
"""Epochs in which a loss that learns leaves that of guessing."""
_CLASSES: Final = 20
"""Most classes of which the loss of guessing is told from that of others by itself."""

_LOSS: Final = re.compile(
    rb"(?<![\w/.-])((?:(?:train(?:ing)?|total|avg|average|mean|running|epoch|batch)[_/])*"
    rb"loss(?:[_/](?:train|total|epoch|step))?|cost)\\?['\"]?(?: is)?[ \t]*[:=|]?[ \t]*"
    rb"(?:tensor\(|np\.float\d+\(|\[|\(|')*([-+]?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)(?!(?!batch \d)\w|\.\d))"
)
_BEFORE: Final = re.compile(rb"([a-z][a-z/_-]*)[ \t]+\Z")
_OF_TRAINING: Final = frozenset(
    b"train training total avg average mean running epoch batch step iter iteration current the info and with".split()
)
"""Words before a loss that say nothing of another one than that of training."""
_EPOCH: Final = re.compile(rb"(?<![\w-])epoch\\?['\"]?[ \t]*[:=#]?[ \t]*[\[(]?[ \t]*(\d+(?:\.\d+)?)")
_STEP: Final = re.compile(rb"(?<![a-z])(?:step|iter(?:ation)?|batch)\\?['\"]?[ \t]*[:=#]?[ \t]*[\[(]?[ \t]*(\d+)")
_ACCURACY: Final = re.compile(
    rb"(?<![\w-])(?:(?:binary|categorical|sparse_categorical|train|training)_)?acc(?:uracy)?['\"]?[ \t]*[:=][ \t]*"
    rb"(\d+(?:\.\d+)?)([ \t]?%)?"
)
_RATE: Final = re.compile(rb"(?<![a-z])(?:lr|learning[_ ]rate)['\"]?[ \t]*[:=]?[ \t]*\[?(\d+(?:\.\d*)?(?:e-?\d+)?)")
_HIDDEN: Final = re.compile(rb"'grad_norm': '?nan")
_SINGLE: Final = b"epoch 1/1"
"""The line of the one epoch of a training, as Keras prints it in a loop."""
_MOMENT: Final = re.compile(rb"\[=+\] - 0s\b")
"""An epoch that took no time: one step of reinforcement learning, or of a program that trains on batch after batch."""
_UNUSUAL: Final = (
    b"reward",
    b"episode",
    b"elbo",
    b"lr_find",
    b"lrfind",
    b"learning rate finder",
    b"finding best initial lr",
)
"""Words of trainings whose loss need not fall where all goes well."""
_OF_OTHERS: Final = re.compile(
    rb"(?<![a-z])(?:d|g|gen\w*|dis\w*|critic|actor|policy|adv\w*|value|q|kld?)\d?[_ /]loss|loss[_ ](?:d|g)(?![a-z])"
)
"""Losses of such trainings."""

Words = dict[str, str]
Place = tuple[int, bytes]
"""A line: its number and its text."""


@dataclass
class _Numbers:
    """The losses of one name since training began, thinned evenly to a bounded number."""

    kept: list[float] = field(default_factory=list)
    count: int = 0
    _stride: int = 1

    def add(self, number: float) -> None:
        if self.count % self._stride == 0:
            self.kept.append(number)
            if len(self.kept) > _MOST:
                del self.kept[1::2]
                self._stride *= 2
        self.count += 1

    def grow(self, factor: float) -> bool:
        """Return whether each of the last tenth is greater than each of the first tenth by a factor."""
        tenth = len(self.kept) // 10
        first, last = max(self.kept[: max(1, tenth)]), min(self.kept[-max(2, tenth) :])
        return min(self.kept) >= 0 and last > max(_LARGE, factor * first)


@dataclass
class _Run:
    """What one training says of one loss."""

    steps: _Numbers = field(default_factory=_Numbers)
    epochs: _Numbers = field(default_factory=_Numbers)  # the last loss of each epoch
    said: str = ""  # the last loss as it was printed
    sames: int = 0  # epochs before this one, from the second on, that ended with the same text
    still: bool = True  # whether all did
    accuracies: list[float] = field(default_factory=list)  # the least and the greatest
    accuracy: float | None = None
    broken: str = ""  # the first loss that was no number
    place: Place = (0, b"")  # its line
    early: bool = True  # whether its first loss was in the first epoch, as far as the log says
    _ended: str = ""

    def add(self, said: str, accuracy: float | None) -> None:
        number = float(said)
        if not math.isfinite(number):
            self.broken = self.broken or said
        elif not self.broken:
            self.steps.add(number)
            self.said, self.accuracy = said, accuracy

    def end_epoch(self) -> None:
        if not self.said:
            return
        if self.epochs.count > 1:
            self.still = self.still and self.said == self._ended
        self.epochs.add(float(self.said))
        self._ended, self.said = self.said, ""
        if self.accuracy is not None:
            self.accuracies = [min([*self.accuracies, self.accuracy]), max([*self.accuracies, self.accuracy])]

    @property
    def stays(self) -> Words | None:
        """The words of a loss that does not change; none if it does."""
        numbers = self.epochs.kept[1:]
        if self.broken or self.epochs.count < _GUESSED or max(self.accuracies, default=0) >= 0.99:
            return None
        if self.accuracies and self.accuracies[1] - self.accuracies[0] > 0.05:
            return None
        told = {"value": self._ended, "epochs": str(self.epochs.count)}
        told |= {"accuracy": f"{self.accuracies[1]:.4g}"} if self.accuracies else {}
        loss, accuracy = numbers[-1], max(self.accuracies, default=0)
        if loss == 0:
            shown = bool(accuracy) or "e" in self._ended
            return {**told, "zero": "yes"} if self.still and not self.epochs.kept[0] and shown else None
        classes = round(math.exp(min(loss, 20)))
        guessed = abs(loss - math.log(max(classes, 1))) < 0.003
        guessed = guessed and (1 < classes <= _CLASSES or 0.8 < accuracy * classes < 1.25)
        if guessed and max(numbers) - min(numbers) <= 0.002 * loss:
            return {**told, "classes": str(classes)}
        exact = len(re.sub(r"e.*|\D", "", self._ended).strip("0")) > 2
        return told if self.still and exact and self.epochs.count >= _STILL else None

    @property
    def grows(self) -> Words | None:
        """The words of a loss that grows by orders of magnitude; none if it does not."""
        numbers, least, what = (self.epochs, _EPOCHS, "epochs") if self.epochs.count else (self.steps, _STEPS, "steps")
        if numbers.count < least or not numbers.grow(_GROWTH):
            return None
        return {"first": f"{numbers.kept[0]:.3g}", "last": f"{numbers.kept[-1]:.3g}", "over": what}

    @property
    def falls(self) -> Words | None:
        """The words of a loss of classes that falls further and further below zero; none if it does not."""
        numbers = self.epochs.kept
        tenth = max(1, len(numbers) // 10)
        if not self.accuracies or self.epochs.count < _EPOCHS or max(numbers[-max(2, tenth) :]) > -_LARGE:
            return None
        if max(numbers[-tenth:]) >= min(*numbers[:tenth], 0) or numbers[-1] > min(numbers) / 2:
            return None
        return {"first": f"{numbers[0]:.3g}", "last": f"{numbers[-1]:.3g}", "epochs": str(self.epochs.count)}

    @property
    def breaks(self) -> Words:
        """The words of a loss that is no number any more."""
        told = {"infinite": "yes", "became": "infinite"} if "inf" in self.broken else {"became": "NaN"}
        if not self.steps.kept:
            return {**told, "never": "yes"} if self.early else {}
        told |= {"before": f"{self.steps.kept[-1]:.3g}", "first": f"{self.steps.kept[0]:.3g}"}
        grown = self.steps.kept[-1] > max(_LARGE, 10 * min(self.steps.kept)) and min(self.steps.kept) >= 0
        how = "grown" if grown else "unscaled" if self.steps.kept[-1] > _UNSCALED else "sudden"
        return {**told, how: "yes"}


@dataclass
class Losses:
    """The losses of one log."""

    _runs: dict[str, _Run] = field(default_factory=dict)
    _epoch: float = -1
    _step: int = -1
    _read: int = 0
    _gaps: bool = False
    _unusual: bool = False
    _rates: list[float] = field(default_factory=list)  # the first and the greatest
    _said: bytes = b""  # the epoch as it was printed
    _loops: int = 0  # trainings of one epoch each
    _lines: int = 0  # with a loss, of this epoch
    _last: tuple[Block, int] | None = None  # where the last line is that was taken

    def read(self, block: Block, lowered: bytes) -> None:
        """Take the losses of a part of a log: all of a short log, some of a long one."""
        if b"loss" not in lowered and b"cost" not in lowered:
            return
        start = 0
        if self._read > _WHOLE:
            self._gaps = True
            start = lowered.rfind(b"\n", 0, max(0, len(lowered) - _TAIL)) + 1
        self._read += len(lowered) - start
        text = lowered[start:]
        self._unusual = self._unusual or any(word in text for word in _UNUSUAL)
        left = -1  # the start of the last line with a loss, if that was left out
        for line in text.split(b"\n"):
            at = line.find(b"epoch")
            if at >= 0 and line.strip() == _SINGLE:
                self._loops += self._epoch >= 0
                self._end_epochs()
            if at >= 0 and line[at : at + _NUMBERED] != self._said and (found := _EPOCH.search(line)):
                if left >= 0:
                    self._take(block, left)
                self._begin(float(found[1]))
                self._said = line[at : at + _NUMBERED]
                left, self._lines = -1, 0
            if b"loss" in line or b"cost" in line:
                self._lines += 1
                left = start if self._lines > _ALL and self._lines % _EACH else -1
                if left < 0:
                    self._take(block, start)
            start += len(line) + 1
        if left >= 0:
            self._take(block, left)

    def _end_epochs(self) -> None:
        for run in self._runs.values():
            run.end_epoch()

    def _begin(self, epoch: float) -> None:
        # A callback of Keras 1 counts from 0, and names an epoch after its end.
        if epoch in {self._epoch, self._epoch - 1}:
            return
        self._end_epochs()
        if epoch < self._epoch:
            self._runs.clear()
            self._rates.clear()
        self._epoch = epoch

    def _take(self, block: Block, start: int) -> None:
        """Take the losses of one line."""
        end = block.text.find(b"\n", start)
        line = block.text[start : min(end if end >= 0 else len(block.text), start + _LONGEST)].lower()
        self._unusual = self._unusual or _OF_OTHERS.search(line) is not None
        self._unusual = self._unusual or (self._said.startswith(_SINGLE) and _MOMENT.search(line) is not None)
        losses = [each for each in _LOSS.finditer(line) if _is_of_training(line[: each.start()])]
        if not losses:
            return
        self._last = (block, start)
        if found := _STEP.search(line):
            if int(found[1]) < self._step and self._epoch < 0:
                self._runs.clear()
            self._step = int(found[1])
        if found := _RATE.search(line):
            rate = float(found[1])
            self._rates = [self._rates[0], max(self._rates[1], rate)] if self._rates else [rate, rate]
        accuracy = None
        if found := _ACCURACY.search(line):
            accuracy = float(found[1]) / (100 if found[2] else 1)
        for each in losses:
            name = each[1].decode()
            if name in self._runs or len(self._runs) < _NAMES:
                run = self._runs.setdefault(name, _Run(early=self._epoch <= 1))
                # The trainer of Transformers prints zero for a loss that is no number.
                run.add("nan" if _HIDDEN.search(line) and not float(each[2]) else each[2].decode(), accuracy)
                run.place = _find(block, start) if run.broken and not run.place[0] else run.place

    def judge(self) -> Iterator[tuple[str, Words, Place]]:
        """Yield the id of each failure that the losses show, its words and the line that shows it."""
        if self._epoch >= 0:
            self._end_epochs()
        if broken := next((run for run in self._runs.values() if run.broken), None):
            yield "loss-nan", broken.breaks, broken.place
        if self._unusual or broken or (self._epoch < 0 and self._step < 0):
            return
        last = _find(*self._last) if self._last else (0, b"")
        searches = bool(self._rates) and self._rates[1] > 10 * self._rates[0]
        for run in self._runs.values():
            if (words := run.grows) and not searches:
                yield "loss-grows", words, last
                return
            if words := run.falls:
                yield "loss-falls", words, last
                return
            if (words := run.stays) and not self._gaps and not self._loops:
                yield "loss-still", words, last
                return


def _is_of_training(before: bytes) -> bool:
    """Return whether a loss is that of training, by the word before it."""
    found = _BEFORE.search(before[-40:])
    return found is None or found[1] in _OF_TRAINING


def _find(block: Block, start: int) -> Place:
    end = block.text.find(b"\n", start)
    line = block.text[start : end if end >= 0 else len(block.text)]
    return block.first + block.numbered.count(b"\n", 0, start), line
