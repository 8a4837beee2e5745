"""Defines plans: the steps of a request as data. They are run, printed by ``--dry-run``, or written as JSON."""

import csv
import io
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from toolkit.base.console import Console
from train.system import signals

FILE = "plan.json"
SCHEMA = 1

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Step:
    title: str  # a name, unique in its plan
    commands: tuple[tuple[str, ...], ...]  # what is executed, in order
    # digest of each input by name; empty if only an earlier step determines it
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()  # files, folders or images that the step makes

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "commands": [list(argv) for argv in self.commands],
            "inputs": dict(self.inputs),
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    steps: tuple[Step, ...]

    @property
    def commands(self) -> list[list[str]]:
        return [list(argv) for step in self.steps for argv in step.commands]

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "steps": [step.to_json() for step in self.steps]}


@dataclass
class Task(Generic[T]):
    """A step together with the function that carries it out; later tasks use the function's result."""

    step: Step
    action: Callable[[], T]
    result: T = field(init=False)


def run(tasks: Sequence[Task[Any]], console: Console, *, dry_run: bool = False) -> bool:
    """Run the tasks in order, or in a dry run print their commands. Return whether the tasks ran."""
    if dry_run:
        print_plan(Plan(steps=tuple(task.step for task in tasks)), console)
        return False
    for task in tasks:
        signals.check()
        task.result = task.action()
    return True


def print_plan(plan: Plan, console: Console) -> None:
    value = {"commands": plan.commands, "plan": plan.to_json()}
    console.result(value, "\n".join(shlex.join(argv) for argv in plan.commands))


def repeat(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def quote_fields(*fields: str) -> str:
    """Return comma-separated fields as docker's options read them; one with a comma or a quotation mark is quoted."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()
