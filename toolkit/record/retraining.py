"""Checks a run by training some stretches of it again, and finds the first step, tensor and element where two part."""

import hashlib
import json
import math
import re
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit import digest, files, pipeline, project, signing, steps, training_job
from toolkit.artifacts import Run
from toolkit.console import Console
from toolkit.engine import Job, Mount
from toolkit.errors import IntegrityError, JobError, PreflightError, UnsupportedError, UsageError
from toolkit.findings import Finding, check
from toolkit.record import comparison, reproduction
from toolkit.record.reproduction import Reproduction
from toolkit.signing import Statement
from toolkit.steps import Task
from toolkit.wheel import wheel_documents
from train.config.configuration import INCIDENTAL
from train.record import audit, reader
from train.record.reader import RunRecord

if TYPE_CHECKING:
    from toolkit.keys import Signer

PREDICATE: Final = "urn:x-tensorflow-toolkit:replay:v1"
"""The type of the statement of an audit: how many stretches were asked for, by which seed, when, and the result."""

SUMMARY: Final = "https://slsa.dev/verification_summary/v1"
"""The type of such a statement of earlier versions, which is a verification summary of SLSA."""

REPLAYED: Final = "TOOLKIT_REPLAYED_"
"""Start of the level by which a statement of an earlier version says how many stretches were asked for."""

PROGRAM: Final = project.ROOT / "train" / "use" / "replay.py"

Span = tuple[int, int]
"""The last step before a stretch, and its last one."""

SHARES: Final = (0.01, 0.05, 0.1, 0.5)
"""Shares of forged stretches for which the chance to miss them all is told, beside that of one stretch."""


def read_leaves(record: RunRecord) -> dict[Span, str]:
    """Return the lines of a run's leaves by their stretches. Raises PreflightError if it cannot be audited."""
    if "audit" not in record.value:
        raise PreflightError(
            f"{record.folder} has no audit data",
            why="it was trained without --audit-every",
            remedy="`toolkit reproduce` runs all of it again; train with --audit-every N for a check of parts",
        )
    lines = audit.read_lines(record.folder)
    leaves = {(leaf["first"], leaf["last"]): line for line, leaf in ((line, audit.parse(line)) for line in lines)}
    begun = record.value.get("continued_after", 0)
    folder = record.folder / reader.CHECKPOINTS
    kept = {file.stem for file in reader.list_checkpoints(folder) if file.with_suffix(".npz").exists()}
    missing = [step for step, _ in leaves if step != begun and f"step-{step:08d}" not in kept]
    if missing or not leaves:
        raise PreflightError(
            f"the audit data of {record.folder} is not whole",
            why=f"{len(missing)} of {len(leaves)} checkpoints are not here, the first of step {min(missing)}"
            if missing
            else f"there is no {audit.FILE}",
            remedy="copy the whole folder of the run: who chooses what is missing would choose what is checked",
        )
    return leaves


def choose(count: int, number: int, seed: str) -> list[int]:
    """Return `number` numbers below `count`: those with the least SHA-256 of the seed, a space and the number."""
    order = sorted(range(count), key=lambda index: hashlib.sha256(f"{seed} {index}".encode()).digest())
    return sorted(order[:number])


def miss(count: int, number: int, forged: int) -> float:
    """Return the probability that none of `forged` stretches is among `number` ones chosen of `count`."""
    return math.comb(count - forged, number) / math.comb(count, number)


def describe_misses(count: int, number: int) -> dict[int, float]:
    """Return the chance that no forged stretch is chosen, by how many are forged: one, and some shares of all."""
    forged = sorted({1, *(math.ceil(share * count) for share in SHARES)})
    return {forgeries: miss(count, number, forgeries) for forgeries in forged}


@dataclass(frozen=True, kw_only=True)
class Audit:
    seed: str
    asked: int  # how many stretches were asked for; a run that has fewer has all of them trained again
    stretches: int  # of the whole run
    subjects: Mapping[str, str]  # digests of what a signature of the run covers, as they were before
    findings: tuple[Finding, ...]  # one for each that was repeated
    misses: Mapping[int, float]

    def as_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "stretches": self.stretches,
            "repeated": [item.as_dict() for item in self.findings],
            "missed": {str(forged): chance for forged, chance in self.misses.items()},
        }

    def describe(self) -> str:
        chances = ", ".join(f"{forged}: {chance:.3g}" for forged, chance in self.misses.items())
        return (
            f"{len(self.findings)} of {self.stretches} stretches trained again, chosen by --seed {self.seed}; "
            f"probability to miss so many forged stretches: {chances}"
        )


def replay(repeated: Reproduction, number: int, seed: str, console: Console) -> Audit:
    """Train some stretches again, and compare them.

    Raises PreflightError if the run cannot be audited here, and JobError if the training fails.
    """
    leaves = read_leaves(repeated.record)
    subjects = _list_subjects(repeated.record.folder)
    spans = list(leaves)
    chosen = [spans[index] for index in choose(len(spans), number, seed)]
    with repeating(repeated, console) as repeat:
        repeated_leaves = repeat(chosen, 0)
    return Audit(
        seed=seed,
        asked=number,
        subjects=subjects,
        stretches=len(spans),
        findings=tuple(_compare(span, leaves[span], now) for span, now in zip(chosen, repeated_leaves, strict=True)),
        misses=describe_misses(len(spans), len(chosen)),
    )


def sign(folder: Path, outcome: Audit, signer: "Signer") -> Path:
    """Write beside a run what its audit gave, signed, in place of this key's earlier statement.

    Raises IntegrityError if the run has changed since the audit began.
    """
    if _list_subjects(folder) != outcome.subjects:
        raise IntegrityError(
            f"{folder} has changed while parts of it were trained again",
            remedy="find out who changed it, and start again; nothing was signed",
        )
    passed = all(item.state == "ok" for item in outcome.findings)
    predicate = {
        "result": "PASSED" if passed else "FAILED",
        "stretches": outcome.asked,
        "of": outcome.stretches,
        "seed": outcome.seed,
        "time": wheel_documents.stamp(time.time()),
    }
    statement = Statement(kind="replay", subjects=outcome.subjects, predicate_type=PREDICATE, predicate=predicate)
    record = folder / f"replay-{signer.public_key.keyid[:8]}"
    signing.write(record, statement, signer, replace=True)
    return signing.locate(record)


def _list_subjects(folder: Path) -> Mapping[str, str]:
    return Run(folder=folder, state=folder).make_statement().subjects


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What a signed statement says of an audit."""

    passed: bool
    stretches: int  # how many were asked for
    age: float  # seconds since then, by the clock of whoever signed it


def read_statement(statement: Statement) -> Stated:
    """Read the statement of an audit, also of an earlier version. Raises IntegrityError if it is of something else."""
    predicate = statement.predicate
    if statement.predicate_type == PREDICATE:
        result, count, when = (predicate.get(name) for name in ("result", "stretches", "time"))
    elif statement.predicate_type == SUMMARY:
        result, when = predicate.get("verificationResult"), predicate.get("timeVerified")
        count = _count_levels(predicate.get("verifiedLevels"))
    else:
        raise IntegrityError("a statement is not of stretches that were trained again")
    try:
        age = time.time() - datetime.fromisoformat(str(when)).timestamp()
    except ValueError as error:
        raise IntegrityError("a statement does not say when the stretches were trained again") from error
    return Stated(passed=result == "PASSED", stretches=count if type(count) is int else 0, age=age)


def _count_levels(levels: object) -> int:
    """Return how many stretches were asked for, by the levels of an earlier version's statement."""
    words = [str(level) for level in levels] if isinstance(levels, list) else []
    counts = [word.removeprefix(REPLAYED) for word in words if word.startswith(REPLAYED)]
    return max((int(count) for count in counts if count.isascii() and count.isdigit() and len(count) < 10), default=0)


def _compare(span: Span, recorded: str, repeated: Sequence[str]) -> Finding:
    """Compare a leaf with the one that the stretch has given again."""
    name, same = f"steps {span[0] + 1} to {span[1]}", [recorded] == list(repeated)
    evidence = audit.hash_tree([recorded])
    if not same:
        then, now = audit.parse(recorded), audit.parse(repeated[0]) if repeated else {}
        other = [part for part in then if then[part] != now.get(part)]
        evidence = "another " + ", ".join(f"{part} {_shorten(now.get(part))}" for part in other)
    facts = {"first": span[0], "last": span[1], "leaf": audit.hash_tree([recorded])}
    return replace(check(name, same, evidence), facts=facts)


def _shorten(value: object) -> str:
    return value[:12] if isinstance(value, str) else ""


class Repeat:
    """Trains stretches of one run again, in a folder that it owns."""

    def __init__(self, repeated: Reproduction, folder: Path, console: Console) -> None:
        self.repeated, self.console, resolved = repeated, console, repeated.resolved
        settings = replace(resolved.request.settings, runs=str(folder))
        self.config = training_job.read_arguments(repeated.arguments, settings)
        self.environment = pipeline.environment_task(resolved, console)

    def __call__(self, spans: Sequence[Span], every: int) -> list[list[str]]:
        """Return the leaves of each stretch: one for its end, and with `every` one after each so many steps."""
        job = self._plan(spans, every)
        work = Task(self.repeated.resolved.step(job), lambda: self._run(job))
        steps.run([self.environment, work], self.console)
        return work.result

    def read_state(self, span: Span, step: int) -> reader.SavedState:
        """Return the state after a step of a stretch that was trained again with a leaf for each step."""
        folder = self.config.run_dir / f"{span[0]}-{span[1]}" / reader.CHECKPOINTS
        return reader.read_state(folder / f"step-{step:08d}.json")

    def _plan(self, spans: Sequence[Span], every: int) -> Job:
        resolved = self.repeated.resolved
        job = training_job.plan(self.repeated.arguments, self.config, None, gpu=resolved.gpu, display="quiet")
        run = Mount(source=self.repeated.record.folder, target="/audited")
        words = (",".join(f"{first}:{last}" for first, last in spans), str(every))
        # The program of this revision, because an image of an older one has none and could not say so.
        program = Mount(source=PROGRAM, target="/opt/toolkit/replay.py")
        argv = ("-P", program, run, *words, *job.argv[3:])
        return replace(job, title="replay", argv=argv, mounts=(program, run, *job.mounts), terminal=False)

    def _run(self, job: Job) -> list[list[str]]:
        used = self.environment.result
        reproduction.require_same_software(self.repeated.record, training_job.describe_parent(used))
        for mount in job.mounts:
            if mount.writable:
                files.require_writable(mount.source)
        lines: list[str] = []
        code = self.repeated.resolved.engine.run(used, job, lines.append)
        if code == UnsupportedError.exit_code:
            command = f"toolkit reproduce {self.repeated.record.folder} --engine {self.repeated.resolved.engine.name}"
            raise UnsupportedError(
                f"{used.reference} cannot train parts of a run again",
                why="its training job is of an older revision, without this",
                remedy=f"`{command}` repeats the whole run with the training job of this revision",
            )
        if code:
            raise JobError(job.title, code)
        leaves: list[list[str]] = json.loads(lines[-1])
        return leaves


@contextmanager
def repeating(repeated: Reproduction, console: Console) -> Iterator[Repeat]:
    runs = Path(repeated.resolved.request.settings.runs)
    files.require_writable(runs)
    with files.stage(runs, digest.shorten(repeated.record.value["config_sha256"])) as staging:
        yield Repeat(repeated, staging.path, console)


@dataclass(frozen=True, kw_only=True)
class Element:
    """The first element of the first tensor that differs. The first is that of the first layer by name."""

    tensor: str
    index: tuple[int, ...]
    values: tuple[str, str]
    tensors: int  # how many tensors differ


@dataclass(frozen=True, kw_only=True)
class Parting:
    """Where two runs part. Without a step, their states are equal as far as both go."""

    equal: int  # the last step after which their states are known to be equal; -1 if there is none
    step: int | None = None  # the first step after which they differ
    element: Element | None = None
    note: str = ""

    def describe(self) -> str:
        if self.step is None:
            return self.note or f"the states are the same to the bit up to step {self.equal}"
        text = f"the states part in step {self.step}" if self.step > 0 else "the states differ before the first step"
        if not (element := self.element):
            return f"{text}; {self.note or 'all tensors are equal, only sums of the epoch differ'}"
        place = f"{element.tensor}{list(element.index)}" if element.index else element.tensor
        then, now = element.values
        return f"{text}, first in {place}: {now}, was {then}; {element.tensors} tensors differ"


def find_parting(then: Reproduction, now: Reproduction, console: Console) -> Parting:
    """Find where two audited runs part, by their leaves, and by training the stretch of both again in which they do."""
    marks = [_read_marks(run.record) for run in (then, now)]
    common = sorted(marks[0].keys() & marks[1].keys())
    if not common:
        raise UsageError("the two runs have no step in common at which both were audited")
    equal = [step for step in common if marks[0][step] == marks[1][step]]
    parted = next((step for step in common if step not in set(equal)), None)
    if parted is None:
        return Parting(equal=common[-1])
    begin = max((step for step in equal if step < parted), default=-1)
    span = (begin, parted) if begin >= 0 else (parted, parted)
    with ExitStack() as stack:
        repeats = [stack.enter_context(repeating(run, console)) for run in (then, now)]
        repeated_leaves = [repeat([span], 1)[0] for repeat in repeats]
        for lines, known, run in zip(repeated_leaves, marks, (then, now), strict=True):
            if audit.parse(lines[0])["before"] != known[span[0]]:
                raise IntegrityError(
                    f"{run.record.folder} does not begin steps {span[0] + 1} to {span[1]} with the state of its leaf",
                    remedy="`toolkit reproduce RUN --stretches K` says what else of it does not hold",
                )
        traces = [_trace(lines) for lines in repeated_leaves]
        step = next((step for step in traces[0] if traces[0][step] != traces[1].get(step)), None)
        if step is None and begin >= 0:
            return Parting(equal=begin, note=_explain(begin, parted))
        step = parted if step is None else step
        first, second = (repeat.read_state(span, step) for repeat in repeats)
        return Parting(equal=step - 1 if begin >= 0 else -1, step=step, element=_find_element(first, second))


def _explain(begin: int, parted: int) -> str:
    return (
        f"the recorded states after step {parted} differ, but steps {begin + 1} to {parted} of both, trained again, "
        "give the same: `toolkit reproduce RUN --stretches K` says which record is not what its training gives"
    )


def _read_marks(record: RunRecord) -> dict[int, str]:
    lines = list(read_leaves(record).values())
    begun = audit.parse(lines[0])
    return {begun["first"]: begun["before"]} | _trace(lines)


def _trace(lines: Sequence[str]) -> dict[int, str]:
    return {leaf["last"]: leaf["after"] for leaf in map(audit.parse, lines)}


def _find_element(then: reader.SavedState, now: reader.SavedState) -> Element | None:
    before, after = ({array[0]: array[1:] for array in reader.read_arrays(saved)} for saved in (then, now))
    other = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not other:
        return None
    name = min(other, key=_order)
    if name not in before or name not in after or before[name][:2] != after[name][:2]:
        forms = [f"{side[name][0]} {side[name][1]}" if name in side else "none" for side in (before, after)]
        return Element(tensor=name, index=(), values=(forms[0], forms[1]), tensors=len(other))
    kind, shape, _ = before[name]
    size = struct.calcsize(_FORMATS.get(kind[1:], f"{kind[2:]}s"))
    pairs = zip(before[name][2], after[name][2], strict=True)
    place = next(index for index, (earlier, later) in enumerate(pairs) if earlier != later) // size
    index = [place // math.prod(shape[axis + 1 :]) % length for axis, length in enumerate(shape)]
    values = [_read_value(kind, arrays[name][2][place * size :][:size]) for arrays in (before, after)]
    return Element(tensor=name, index=tuple(index), values=(values[0], values[1]), tensors=len(other))


_FORMATS: Final = {"f2": "<e", "f4": "<f", "f8": "<d", "i8": "<q", "i4": "<i"}


def _read_value(kind: str, data: bytes) -> str:
    form = _FORMATS.get(kind[1:])
    return repr(struct.unpack(form, data)[0]) if form else data.hex()


def _order(name: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    """Sort weights before counters and slots, and numbers in names by their value."""
    parts = re.split(r"(\d+)", name.removeprefix(reader.SLOTS))
    key = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
    return name.startswith(reader.SLOTS) or name in reader.COUNTERS, key


def list_differences(then: RunRecord, now: RunRecord) -> list[Finding]:
    """Compare what two runs were made with: each decisive option, data, machine, software."""
    names = sorted((then.config.keys() | now.config.keys()) - INCIDENTAL)
    options = [
        check(f"config.{name}", False, f"{now.config.get(name)}, was {then.config.get(name)}")
        for name in names
        if then.config.get(name) != now.config.get(name)
    ]
    parts = [
        check(name, False, f"{now.environment.get(name)}, was {then.environment.get(name)}")
        for name in (*reader.DECISIVE, reader.KERNELS)
        if then.environment.get(name) != now.environment.get(name)
    ]
    links = comparison.walk(then, now, comparison.compare(then, now))
    return [*options, *parts, *(link for link in links if link.state == "fail")]
