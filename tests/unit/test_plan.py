import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.base.console import Console
from toolkit.base.errors import IntegrityError
from toolkit.base.steps import Plan, Step, Task, print_plan, run

STEPS = st.builds(
    Step,
    title=st.text(),
    commands=st.lists(st.lists(st.text()).map(tuple)).map(tuple),
    inputs=st.dictionaries(st.text(), st.text()),
    outputs=st.lists(st.text()).map(tuple),
)
PLANS = st.builds(Plan, steps=st.lists(STEPS).map(tuple))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
PLAN = Plan(steps=(Step(title="make", commands=(("make", "a b"), ("echo", "x'y")), inputs={"lock": "sha256:1"}),))


@given(PLANS)
def test_a_plan_is_read_back_as_it_was_written(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


@given(VALUES)
def test_what_is_no_plan_is_refused(value: object) -> None:
    with pytest.raises(IntegrityError, match="not a plan"):
        Plan.from_json(value)


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


def test_a_plan_of_another_schema_is_refused() -> None:
    with pytest.raises(IntegrityError, match="schema"):
        Plan.from_json({**PLAN.to_json(), "schema": 2})


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


def test_tasks_run_in_order_and_hand_on_their_results(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def act(title: str, value: int) -> int:
        done.append(title)
        return value

    first = Task(Step(title="one", commands=(("one",),)), lambda: act("one", 1))
    second = Task(Step(title="two", commands=(("two",),)), lambda: act("two", first.result + 1))
    assert not run([first, second], Console(), dry_run=True)
    assert (done, capsys.readouterr().out) == ([], "one\ntwo\n")
    assert run([first, second], Console())
    assert (done, second.result) == (["one", "two"], 2)


def test_nothing_runs_after_a_task_that_failed() -> None:
    def fail() -> None:
        raise IntegrityError("x")

    later = Task(Step(title="later", commands=()), lambda: pytest.fail("it ran"))
    with pytest.raises(IntegrityError):
        run([Task(Step(title="x", commands=()), fail), later], Console())
