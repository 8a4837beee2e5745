import itertools
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.command import Run
from tests.unit.sweep.conftest import OPTIONS, write
from tests.unit.train.own.making import write_classes
from toolkit.errors import UsageError
from toolkit.settings import resolve
from toolkit.sweep import Sweep, expand, read
from train.cli import SWITCHES

NAMES = st.sampled_from(sorted(SWITCHES))
VALUES = st.one_of(st.integers(), st.booleans(), st.text(max_size=5), st.floats(allow_nan=False))


def values(name: str) -> st.SearchStrategy[Any]:
    return st.booleans() if SWITCHES[name] else VALUES.filter(lambda value: not isinstance(value, bool))


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, Any]:
    names = iter(draw(st.lists(NAMES, min_size=6, max_size=6, unique=True)))
    common, axes, listed = (list(itertools.islice(names, draw(st.integers(0, 2)))) for _ in range(3))
    return {
        "dataset": "digits",
        "options": {name: draw(values(name)) for name in common},
        "grid": {name: draw(st.lists(values(name), min_size=1, max_size=3)) for name in axes},
        "list": [{name: draw(values(name)) for name in listed} for _ in range(draw(st.integers(1, 3)))],
    }


@settings(max_examples=40)
@given(sweeps())
def test_each_entry_of_the_list_meets_each_point_of_the_grid_once(value: dict[str, Any]) -> None:
    read_back = yaml.safe_load(yaml.safe_dump(value, sort_keys=False))
    dataset, common, members = expand(read_back, limit=1000)
    grid = value["grid"]
    expected = [
        {**entry, **dict(zip(grid, point, strict=True))}
        for entry in value["list"]
        for point in itertools.product(*grid.values())
    ]
    assert (dataset, common, members) == ("digits", value["options"], expected)
    with pytest.raises(UsageError, match=f"has {len(expected)} members"):
        expand(value, limit=len(expected) - 1)


@given(st.recursive(VALUES | st.none(), lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=8))
def test_whatever_a_file_holds_it_is_a_sweep_or_refused(value: object) -> None:
    for whole in (value, {"dataset": "digits", "grid": value}, {"dataset": "digits", "options": value, "list": value}):
        try:
            expand(whole, limit=10)
        except UsageError as error:
            assert error.what  # noqa: PT017
            assert error.remedy  # noqa: PT017


def make(tmp_path: Path, value: object, *, limit: int = 100) -> Sweep:
    (tmp_path / "x.yaml").write_text(yaml.safe_dump(value, sort_keys=False))
    return read(tmp_path / "x.yaml", resolve({}), limit=limit)


def test_members_have_the_order_of_the_file_and_folders_by_their_digests(tmp_path: Path) -> None:
    found = make(
        tmp_path, {"dataset": "digits", "options": OPTIONS, "grid": {"augment": [True, False], "seed": [4, 5]}}
    )
    assert [each.label for each in found.members] == [
        "augment True, seed 4",
        "augment True, seed 5",
        "augment False, seed 4",
        "augment False, seed 5",
    ]
    assert found.members[3].arguments[-2:] == ("--no-augment", "--seed=5")
    assert len({each.config.run_dir for each in found.members}) == 4
    assert [each.point for each in found.members] == ["augment True"] * 2 + ["augment False"] * 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"dataset": "digits", "grid": {"learning-rat": [0.1]}}, "did you mean learning-rate?"),
        ({"dataset": "digits", "grid": {"learning_rate": [0.1]}}, "a name that no option has"),
        ({"dataset": "digits", "options": {"help": True}}, "a name that no option has: 'help'"),
        ({"dataset": "digits", "options": {"no-augment": True}}, "did you mean augment?"),
        (
            {"dataset": "digits", "options": {"out": True, "seed": 1}},
            "options gives out a value that it cannot have: True",
        ),
        ({"dataset": "digits", "options": {"augment": "no"}}, "write true or false"),
        ({"dataset": "digits", "options": False}, "options is not a mapping of options: False"),
        ({"dataset": "digits", "list": []}, "list is not a list of values"),
        ({"dataset": "digits", "grid": {"learning-rate": [0.1, 0]}}, "member 1 (learning-rate 0) is refused"),
        ({"dataset": "cifra10"}, "member 0 (the only one) is refused: unknown dataset"),
        ({"dataset": "digits", "grid": {"seed": [0, 1, 0]}}, "members 0 and 2 are the same run"),
        ({"dataset": "digits", "grid": {"keep": [2, 3]}}, "members 0 and 1 are the same run"),
        ({"dataset": "digits", "grid": {"seed": list(range(101))}}, "has 101 members, more than 100"),
        ({"dataset": "digits", "options": {"seed": 1}, "grid": {"seed": [0]}}, "--seed is in the sweep twice"),
        ({"dataset": "digits", "options": {"seed": [0, 1]}}, "no single value"),
        ({"dataset": "digits", "grid": {"seed": 3}}, "not a list of values"),
        ({"dataset": "digits", "grid": [{"seed": 3}]}, "not a mapping of options"),
        ({"dataset": "digits", "gird": {"seed": [3]}}, "no key 'gird'"),
        ({"grid": {"seed": [3]}}, "a mapping that names a dataset"),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(tmp_path, value)
    assert message in str(caught.value)


def test_members_do_not_write_over_each_others_list_of_broken_images(tmp_path: Path) -> None:
    sweep = {
        "dataset": str(write_classes(tmp_path / "pets")),
        "options": {"report-broken": str(tmp_path / "broken.jsonl")},
        "grid": {"seed": [0]},
    }
    make(tmp_path, sweep)
    with pytest.raises(UsageError, match="each other's list"):
        make(tmp_path, sweep | {"grid": {"seed": [0, 1]}})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataset: [", "cannot read"),
        ("\x00", "cannot read"),
        ("{[1]: 2}", "cannot read"),
        (None, "cannot read"),
        ("dataset: digits\ngrid: {seed: [0], epochs: [1], seed: [2]}", "has a key twice: seed"),
    ],
)
def test_a_file_that_says_nothing_or_two_things_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "x.yaml", resolve({}), limit=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slots", "1000"], "is more than"),
        (["--member", "2"], "there is no member 2"),
        (["--member", "0", "--summarise"], "leave one of them out"),
        (["--limit", "1"], "has 2 members, more than 1"),
        (["--slots", "0"], "slots"),
    ],
)
def test_nothing_is_started_for_a_command_that_is_refused(run: Run, options: list[str], message: str) -> None:
    file = write(run.folder, {"dataset": "digits", "options": OPTIONS, "grid": {"seed": [0, 1]}})
    done = run("sweep", file, *options)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert run.started == []
    assert not (run.folder / "runs").exists()


def test_a_dry_run_lists_the_members_as_commands(run: Run) -> None:
    file = write(
        run.folder, {"dataset": "digits", "options": {"augment": False}, "list": [{"seed": 0}, {"model": "40-12"}]}
    )
    done = run("sweep", file, "--dry-run", "--no-gpu")
    lines = [shlex.split(line, comments=True) for line in done.stdout.splitlines()]
    assert lines == [
        ["toolkit", "train", "digits", "--no-augment", "--seed=0", "--no-gpu"],
        ["toolkit", "train", "digits", "--no-augment", "--model=40-12", "--no-gpu"],
    ]
    value = json.loads(run("sweep", file, "--dry-run", "--no-gpu", "--json").stdout)
    assert value["commands"] == lines
    assert [each["status"] for each in value["members"]] == ["missing", "missing"]
    assert run.started == []
