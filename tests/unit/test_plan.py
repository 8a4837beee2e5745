import json
import shlex

import pytest

from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.base.steps import Plan, Step, print_plan

PLAN = Plan(steps=(Step(title="make", commands=(("make", "a b"), ("echo", "x'y")), inputs={"lock": "sha256:1"}),))


@pytest.mark.parametrize(
    "change",
    [
        {"title": 1},
        {"commands": "make"},
        {"commands": [["make", 1]]},
        {"commands": [{"a": "b"}]},
        {"inputs": []},
        {"inputs": {"lock": None}},
        {"outputs": [None]},
    ],
)
def test_a_damaged_step_is_refused(change: dict[str, object]) -> None:
    value = PLAN.to_json()
    value["steps"][0] |= change
    with pytest.raises(IntegrityError, match="not a plan"):
        Plan.from_json(value)


def test_printed_commands_are_read_back_by_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(PLAN, Console())
    assert [shlex.split(line) for line in capsys.readouterr().out.splitlines()] == PLAN.commands


def test_a_printed_plan_is_whole_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json=True)
    print_plan(PLAN, console)
    console.close()
    value = json.loads(capsys.readouterr().out)
    assert value["commands"] == PLAN.commands
    assert Plan.from_json(value["plan"]) == PLAN
