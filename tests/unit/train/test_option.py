"""One entry of the configuration is enough: a field that is added here is found wherever options are read or shown."""

import dataclasses
import inspect
import json
from dataclasses import dataclass
from typing import Any

import pytest
import typer

from tools import pages
from train.command_line import declare_options, parse
from train.config.configuration import DEFAULTS, INCIDENTAL, OPTIONS, TrainConfig
from train.config.option import list_options, option, read_blocks
from train.errors import UsageError

CHANGES: dict[str, Any] = {
    "dataset": "fashion_mnist",
    "labels": "coarse",
    "normalize": "range",
    "model": "another",
    "layers": (2, 2, 2),
    "recipe": "another",
    "optimizer": "adam",
    "schedule": "cosine",
    "memory": "plain",
    "precision": "float64",
    "kernels": "native",
    "loop": "eager",
    "stem": "imagenet",
    "padding": "even",
    "crop": "resized",
    "class_weights": "balanced",
    "progress": "plain",
    "profile": (1, 2),
}
"""Another value of each field that is no number and no text that may be anything."""


@dataclass(frozen=True, kw_only=True)
class Extended(TrainConfig):
    sharpness: int = option("Training", "How sharp images are.", 0, least=0, most=9)
    places: tuple[int, ...] = option("Output", "Where.", (), asked=None, read=read_blocks, metavar="N,…", decides=False)


def extend(**changes: Any) -> Extended:
    return Extended(**dataclasses.asdict(parse(["digits"])), **changes)


def test_an_added_field_is_an_option_of_the_command() -> None:
    def command(**values: Any) -> Any:
        return values["sharpness"], values["places"]

    parameters = list(declare_options(Extended))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    app = typer.Typer()
    app.command()(command)
    found = typer.main.get_command(app)
    assert found.main(["--sharpness", "3", "--places", "1,2"], standalone_mode=False) == (3, "1,2")
    assert list_options(Extended)["places"].read("1,2") == (1, 2)  # type: ignore[misc]


def test_an_added_field_is_checked() -> None:
    assert [extend(sharpness=each).sharpness for each in (0, 9)] == [0, 9]
    with pytest.raises(UsageError, match="--sharpness must be at most 9, not 10"):
        extend(sharpness=10)
    with pytest.raises(UsageError, match="--sharpness must be at least 0, not -1"):
        extend(sharpness=-1)


def test_an_added_field_decides_the_run_or_does_not() -> None:
    usual = extend().digest
    assert usual != parse(["digits"]).digest
    assert extend(places=(1,)).digest == usual
    assert extend(sharpness=1).digest != usual


def test_an_added_field_is_written_and_read() -> None:
    config = extend(sharpness=2, places=(4, 5))
    assert Extended.from_dict(json.loads(json.dumps(config.as_dict()))) == config


def test_an_added_field_is_in_the_table_of_options() -> None:
    table = pages.render_options(Extended)
    assert "| `--sharpness N` | `0` | yes | How sharp images are. |" in table
    assert "| `--places N,…` |  | no | Where. |" in table


def change(name: str, value: Any) -> Any:
    if name in CHANGES:
        return CHANGES[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return ("mlflow",) if name == "log_to" else (1,)
    return value / 2 + 0.2 if isinstance(value, float) else value + 1 if isinstance(value, int) else f"{value}another"


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"image_shape", "class_names", "data_sha256"}))
def test_the_digest_knows_what_decides(name: str) -> None:
    fields = dataclasses.asdict(parse(["digits"]))
    fields |= {name: change(name, fields[name])}
    changed = object.__new__(TrainConfig)  # unchecked: many of these changes want a second one
    for field, value in fields.items():
        object.__setattr__(changed, field, value)
    assert (changed.digest == parse(["digits"]).digest) == (name in INCIDENTAL)


def test_every_field_is_declared_as_an_option() -> None:
    assert OPTIONS.keys() == DEFAULTS.keys()
    assert all(each.help or not each.read for each in OPTIONS.values())
