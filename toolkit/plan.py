"""Plans: the steps of a request as data, printed by ``--dry-run``, carried out, or written to JSON and read back."""

import csv
import io
import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from toolkit.console import Console
from toolkit.errors import IntegrityError

FILE = "plan.json"
SCHEMA = 1

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        title: a word for it, unique in its plan.
        commands: what is executed, in order.
        inputs: digest of each input by name; empty where only an earlier step will tell it.
        outputs: files, folders or images that the step leaves.
    """

    title: str
    commands: tuple[tuple[str, ...], ...]
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON values."""
        return {
            "title": self.title,
            "commands": [list(argv) for argv in self.commands],
            "inputs": dict(self.inputs),
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps in the order in which they are carried out."""

    steps: tuple[Step, ...]

    @property
    def commands(self) -> list[list[str]]:
        """The commands of all steps, in order."""
        return [list(argv) for step in self.steps for argv in step.commands]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {"schema": SCHEMA, "steps": [step.to_json() for step in self.steps]}

    @classmethod
    def from_json(cls, value: object) -> "Plan":
        """Read a plan back.

        Raises:
            IntegrityError: the value is not a plan of this schema.
        """
        try:
            match value:
                case {"schema": 1, "steps": list(steps)}:
                    return cls(steps=tuple(map(_read_step, steps)))
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError("not a plan", why=repr(error)) from error
        raise IntegrityError(f"not a plan of schema {SCHEMA}")


class Task(Generic[T]):
    """A step together with the function that carries it out; the function's result is kept for the tasks after it."""

    def __init__(self, step: Step, action: Callable[[], T]) -> None:
        self.step = step
        self._action = action
        self._results: list[T] = []

    def run(self) -> T:
        """Carry out the step."""
        self._results = [self._action()]
        return self._results[0]

    @property
    def result(self) -> T:
        """What the step gave; only after :meth:`run`."""
        return self._results[0]


def run(tasks: Sequence[Task[Any]], console: Console, *, dry_run: bool = False) -> bool:
    """Carry out the steps in order, or print their commands. Returns whether they were carried out."""
    if dry_run:
        print_plan(Plan(steps=tuple(task.step for task in tasks)), console)
        return False
    for task in tasks:
        task.run()
    return True


def print_plan(plan: Plan, console: Console) -> None:
    """Print the commands of a plan: one a line, as a POSIX shell reads them back, or with ``--json`` the whole plan."""
    value = {"commands": plan.commands, "plan": plan.to_json()}
    console.result(value, "\n".join(shlex.join(argv) for argv in plan.commands))


def repeat(option: str, values: Iterable[str]) -> list[str]:
    """Return an option once for each value."""
    return [part for value in values for part in (option, value)]


def quote_fields(*fields: str) -> str:
    """Return comma-separated fields as docker's options read them: a path may hold a comma or a quotation mark."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _read_step(value: Any) -> Step:
    step = Step(
        title=value["title"],
        commands=tuple(tuple(argv) for argv in value["commands"]),
        inputs=dict(value["inputs"]),
        outputs=tuple(value["outputs"]),
    )
    words = [
        step.title,
        *step.outputs,
        *step.inputs,
        *step.inputs.values(),
        *(word for argv in step.commands for word in argv),
    ]
    if json.loads(json.dumps(step.to_json())) != value or not all(isinstance(word, str) for word in words):
        raise ValueError("a step has other fields or values than a step has")
    return step
