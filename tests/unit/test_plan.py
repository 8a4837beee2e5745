import json

import pytest

from toolkit.base.console import Console
from toolkit.base.steps import Plan, Step, print_plan

PLAN = Plan(steps=(Step(title="make", commands=(("make", "a b"), ("echo", "x'y")), inputs={"lock": "sha256:1"}),))


def test_a_printed_plan_is_whole_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(json=True)
    print_plan(PLAN, console)
    console.close()
    value = json.loads(capsys.readouterr().out)
    assert value["commands"] == PLAN.commands
    assert Plan.from_json(value["plan"]) == PLAN
