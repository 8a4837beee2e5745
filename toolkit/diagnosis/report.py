"""Says what a scan found: the causes in the order in which to mend them, their consequences, and what is harmless."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Final

from toolkit.diagnosis import answers, events
from toolkit.diagnosis.scanning import Line, Match, Scan, scan
from toolkit.diagnosis.table import Answer, Certainty, Rank, Row, load
from toolkit.versions.numbers import to_number
from toolkit.versions.table import Table, load_table
from train.system.output import inline

_CUT: Final = re.compile(r"Traceback \(most recent call last|\bFile \".*\", line \d")
"""A line of a traceback without its message."""
_COMPILER: Final = re.compile(r":\d+:\d+: (?:fatal )?error: |\(\d+\): (?:fatal )?error\b")
"""A message of a compiler, beside which a step of a build that failed explains nothing."""
_WIDTH: Final = 200
"""Characters that are shown of a line of a log."""
PIPE: Final = "`COMMAND 2>&1 | toolkit diagnose`"
PLACES_BY_FACT: Final[Mapping[str, str]] = {
    "image build": "build",
    "Jetson": "jetson",
    "container": "container",
    "WSL": "wsl2",
}
"""The place of a remedy, by the fact that says that a log was written there."""
_TRACKERS: Final[Mapping[str, str]] = {
    "TensorFlow": "https://github.com/tensorflow/tensorflow/issues",
    "JAX": "https://github.com/jax-ml/jax/issues",
    "PyTorch": "https://github.com/pytorch/pytorch/issues",
    "CuPy": "https://github.com/cupy/cupy/issues",
    "numba": "https://github.com/NVIDIA/numba-cuda/issues",
}
"""Where failures are reported, by what a log names."""


@dataclass(frozen=True)
class Cause:
    match: Match
    consequence: bool  # of another failure in the same log
    facts: Mapping[str, str] = field(default_factory=dict)  # what the log says of versions
    ran: Sequence[str] = ()  # the commands that stand in the log

    @property
    def row(self) -> Row:
        return self.match.row

    @property
    def rank(self) -> Rank:
        return self.row.rank

    @cached_property
    def told(self) -> Answer:
        place = next((place for fact, place in PLACES_BY_FACT.items() if fact in self.facts), "")
        return answers.tell(self.row, self.match.words, self.facts, place, lines=self.match.told, ran=self.ran)

    @property
    def certainty(self) -> Certainty:
        return self.told.certainty or self.row.certainty

    @property
    def cause(self) -> str:
        return self.told.cause

    @property
    def remedy(self) -> str:
        return self.told.remedy

    @property
    def commands(self) -> list[str]:
        return list(self.told.commands)

    @property
    def advice(self) -> str:
        """What to do, for a message of the toolkit. Commands of other programs would mislead there."""
        commands = [command for command in self.commands if command.startswith("toolkit ")]
        return "\n".join([self.remedy, *commands, self.row.reference])

    @property
    def sentence(self) -> str:
        """The cause, and where it is explained, for a message."""
        return f"{self.cause.rstrip('.')}; {self.row.reference}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.row.id,
            "cause": self.cause,
            "remedy": self.remedy,
            "commands": self.commands,
            "certainty": self.certainty,
            "harmless": self.rank.harmless,
            "consequence": self.consequence,
            "lines": [line.to_json() for line in self.match.lines],
            "sources": list(self.row.links),
        }

    def render(self) -> str:
        what = "harmless" if self.rank.harmless else "consequence" if self.consequence else "cause"
        rows = [f"{what}: {self.cause}", f"  id: {self.row.id} ({self.certainty})"]
        rows += [_show(line.number, line.text, line.source) for line in self.match.lines]
        rows.append(f"  try: {self.remedy}")
        rows += [f"    {command}" for command in self.commands]
        rows.append(f"  sources: {', '.join(self.row.links)}")
        return "\n".join(rows)


@dataclass(frozen=True)
class Diagnosis:
    found: Scan

    @cached_property
    def causes(self) -> list[Cause]:
        """What was found: what ends the program first, then what does not end it, consequences, what is harmless."""
        matches = {**self.found.matches, **dict(self.found.tell_circumstances())}
        found = {match.row.id for match in matches.values()}
        matches = {name: match for name, match in matches.items() if self._counts(match, found)}
        special = {line.number for match in matches.values() if not match.row.rank.general for line in match.lines}
        matches = {
            name: match
            for name, match in matches.items()
            if not (match.row.rank.general and all(line.number in special for line in match.lines))
        }
        silent = {name for name, match in matches.items() if _says_less(match, matches.values())}
        others = [
            match.row.rank for name, match in matches.items() if not match.row.rank.fallback and name not in silent
        ]
        told = {rank.stops for rank in others if not rank.harmless}
        kept = {
            name: match
            for name, match in matches.items()
            if not (match.row.rank.fallback and (True in told or (told and not match.row.rank.stops)))
            and name not in silent
        }
        inner = any(not match.row.rank.envelope and not match.row.rank.harmless for match in kept.values())
        kept = {name: match for name, match in kept.items() if not (inner and self._is_empty(match))}
        ends = [match.at for match in kept.values() if _says_why(match)]
        kept = {
            name: match for name, match in kept.items() if not (match.on_the_way and any(at > match.at for at in ends))
        }
        past = events.find_past({name: [line.text for line in match.lines] for name, match in kept.items()})
        kept = {name: match for name, match in kept.items() if name not in past}
        explained = {name for match in kept.values() for name in match.row.rank.explains}
        kept_ids = {match.row.id for match in kept.values()}
        causes = [
            Cause(
                match,
                match.row.id in explained or bool(kept_ids & {*match.row.rank.follows}),
                self.found.facts,
                tuple(self.found.ran),
            )
            for match in kept.values()
        ]
        return sorted(causes, key=_order)

    def _counts(self, match: Match, found: set[str]) -> bool:
        """Return whether a match is a failure, or a circumstance that explains one of the log's."""
        if not match.row.rank.circumstance:
            return True
        return bool(found & {*match.row.rank.explains}) and answers.knows(
            match.row, match.words, self.found.facts, match.told
        )

    def _is_empty(self, match: Match) -> bool:
        """Return whether a match only says that something failed, or points to the line that says why."""
        if not match.row.rank.envelope:
            return False
        words = answers.gather(match.row, match.words, self.found.facts)
        return "said" not in words or "points" in words

    @property
    def serious(self) -> list[Cause]:
        return [cause for cause in self.causes if not cause.rank.harmless]

    @property
    def unknown(self) -> bool:
        """Whether the log has errors, and nothing that was found explains them."""
        return bool(self.unexplained)

    @property
    def unexplained(self) -> list[Line]:
        """The first lines that look like an error and the last, if nothing found explains the end of a program."""
        refused = any(_COMPILER.search(line.text) for line in self.found.errors)
        ranks = [cause.rank for cause in self.serious]
        if any(rank.stops and not (refused and rank.envelope and rank.fallback) for rank in ranks):
            return []
        # A log that was cut within a traceback has no error of its own beside what explains it.
        return [] if self.serious and all(_CUT.search(line.text) for line in self.found.errors) else self.found.errors

    @property
    def tracker(self) -> str:
        """Where people report failures of what the log names."""
        named = "TensorFlow" if self.found.ours else next((each for each in _TRACKERS if each in self.found.facts), "")
        return _TRACKERS.get(named, "the tracker of the program that printed them")

    @cached_property
    def misfits(self) -> list[str]:
        """What the log says of versions that the version table has not together."""
        return list(_compare(self.found.facts, load_table()))

    def to_json(self) -> dict[str, Any]:
        return {
            "causes": [cause.to_json() for cause in self.causes],
            "facts": dict(self.found.facts),
            "misfits": self.misfits,
            "errors": [line.to_json() for line in self.unexplained],
            "origin": list(self.found.origin) if self.unexplained else [],
        }

    def render(self) -> str:
        parts = [cause.render() for cause in self.causes]
        if not parts and not self.found.lines:
            parts.append(f"the log is empty; programs print errors apart from their output: {PIPE} has both")
        elif not parts:
            parts.append(f"nothing known was found in {self.found.lines} lines")
        if self.unexplained:
            shown = [_show(line.number, line.text, line.source) for line in self.unexplained]
            parts.append(
                "\n".join(["lines that look like an error and are not known, the first ones and the last:", *shown])
            )
            if self.found.origin:
                parts.append(
                    "\n".join(["the last of them was raised at:", *(f"  {inline(each)}" for each in self.found.origin)])
                )
            parts.append(f"search for them at {self.tracker}, and report what is not there")
        facts = [name if value == "yes" else f"{name} {value}" for name, value in self.found.facts.items()]
        parts += [f"the log speaks of {', '.join(facts)}"] if facts else []
        parts += ["\n".join(f"does not fit: {each}" for each in self.misfits)] if self.misfits else []
        return "\n\n".join(parts)


def _says_less(match: Match, others: Iterable[Match]) -> bool:
    """Return whether a failure that says more stands in the log. A harmless one says more of its own lines alone."""
    better = [each for each in others if each.row.id in match.row.rank.unless]
    if not match.row.rank.stops or not match.places:
        return bool(better)
    harmless = {place for each in better if each.row.rank.harmless for place in each.places}
    return match.places <= harmless or any(not each.row.rank.harmless for each in better)


def _says_why(match: Match) -> bool:
    """Return whether a match is a message that ended the program, and not only a place on the way to it."""
    rank = match.row.rank
    return rank.stops and not (match.on_the_way or rank.harmless or rank.fallback or rank.envelope)


def _order(cause: Cause) -> tuple[bool, bool, bool, bool, tuple[int, int]]:
    row = cause.row
    return row.rank.harmless, cause.consequence, not row.rank.stops, cause.certainty != "certain", cause.match.at


def _show(number: int, text: str, source: str) -> str:
    half = _WIDTH // 2
    short = text if len(text) <= _WIDTH else f"{text[:half]} … {text[-half:]}"
    return f"  {f'{inline(source)}:' if source else 'line '}{number}: {inline(short)}"


def _compare(facts: Mapping[str, str], table: Table) -> Iterable[str]:
    row = table.tensorflow_rows.get(facts.get("TensorFlow", ""))
    if row is None:
        return
    python, bazel, cuda = (facts.get(name, "") for name in ("Python", "Bazel", "CUDA"))
    if python and ".".join(python.split(".")[:2]) not in row.python:
        yield f"Python {python} with TensorFlow {row.version}, which has {', '.join(row.python)}"
    if bazel and bazel != row.bazel:
        yield f"Bazel {bazel} with TensorFlow {row.version}, which wants {row.bazel}"
    if cuda and cuda.split(".")[0] not in {each.split(".")[0] for each in row.cuda}:
        yield f"CUDA {cuda} with TensorFlow {row.version}, which has {row.cuda[0]} to {row.cuda[-1]}"
    driver = facts.get("driver", "")
    wanted = next((table.cuda_rows[each].driver_min for each in row.cuda), "")
    if driver and wanted and to_number(driver) < to_number(wanted):
        yield f"driver {driver} with TensorFlow {row.version}, whose CUDA wants {wanted} or newer"


def diagnose(logs: Iterable[tuple[str, BinaryIO]]) -> Diagnosis:
    """Return what is known of the failures in some logs, each with its name if there are several."""
    return Diagnosis(scan(load(), logs))


def explain(text: str, *, certain: bool = True) -> Cause | None:
    """Return the cause to mend first of a text that is the message or the log of a failure.

    ``certain``: leave out those that are only likely.
    """
    causes = diagnose([("", io.BytesIO(text.encode("utf-8", "replace")))]).serious
    first = [cause for cause in causes if not cause.consequence]
    return next((cause for cause in first if not certain or cause.certainty == "certain"), None)


def name_cause(text: str, *, certain: bool = True) -> str:
    """Return a line for a message: the cause that a log shows and where it is explained; empty if it shows none."""
    if cause := explain(text):
        return f"cause: {cause.sentence}"
    likely = None if certain else explain(text, certain=False)
    return f"perhaps: {likely.sentence}" if likely else ""


def explain_exit_code(code: int) -> Cause | None:
    """Return what an exit code of the build's step means where its log names no cause."""
    row = load().exit_codes.get(code)
    return Cause(Match(row, {}, (0, 0)), consequence=False) if row else None
