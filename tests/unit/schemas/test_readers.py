"""What a reader takes its schema allows; what a schema allows the reader takes, or it names a rule of this list."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.unit.schemas.making import TEXTS, near
from toolkit import records
from toolkit.base import keys, manifest, steps
from toolkit.base.errors import ToolkitError
from toolkit.versions import lock
from toolkit.versions.settings import resolve
from tools import schemas
from train.command_line import parse
from train.record import reader

SCHEMAS = {name: json.loads(text) for name, text in schemas.generate().items()}

RULES: Mapping[str, str] = {
    "settings that belong together, because each may come from another layer": "was given without",
    "versions, which the version table knows": "not a version of",
    "files that must exist": r"cannot read the key|the CA bundle does not exist|No such file|Is a directory|"
    r"has no readable manifest|there is no [\w./]|\[Errno",
    "names that are in tables": "unknown (dataset|model|recipe|log to)",
    "what a number or a list written as text may be": "Invalid value for|is no (whole )?number|not a batch size|"
    r"not a number of blocks|not a range of steps|not a list of blocks|is refused: --[\w-]+ must be",
    "whole numbers with a decimal point": r"wrong type: .*\d\.0",
    "which options go together": "is for your own images|cuts a batch|no extra split|no coarse labels|names block|"
    "is not a number of blocks|both begin with|block without layers|leaves no channels|chooses an epoch|"
    "keeps weights that were trained|says where to save memory|do(es)? not work (together|with)|all shards|"
    "cannot compile|compiles the step|has depth|depth of model|needs images of|begins a run anew",
}
"""What a schema cannot say, with what the readers say."""


def read_settings(path: Path) -> object:
    return resolve({}, file=path, environment={})


def read_policy(path: Path) -> object:
    return records.read_policy([path])


def read_manifest(path: Path) -> object:
    found = manifest.read(path.parent)
    if found is None:
        raise ToolkitError("no complete manifest")
    return found


def read_plan(path: Path) -> object:
    return steps.Plan.from_json(json.loads(path.read_text()))


def read_run(path: Path) -> object:
    return reader.read_record(path), reader.read_config(path)


READERS: Mapping[str, tuple[str, Callable[[Path], object]]] = {
    "settings": ("toolkit.yaml", read_settings),
    "policy": ("policy.yaml", read_policy),
    "lock": ("toolkit.lock.yaml", lock.read),
    "manifest": ("manifest.json", read_manifest),
    "plan": ("plan.json", read_plan),
    "run": ("manifest.json", read_run),
    "config": ("config.yaml", reader.read_config),
}

BASE = parse(["digits"]).as_dict()


def find_known(name: str) -> dict[str, st.SearchStrategy[Any]]:
    """Return what is drawn for some names of a file, in place of any text."""
    key = st.just("key.pub") | TEXTS
    config = {each: st.just(BASE[each]) for each in SCHEMAS["config"]["required"]}
    known: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "policy": {"key": key},
        "config": config,
        "run": {"config": st.just(BASE) | near(SCHEMAS["config"], **config)},
    }
    return known.get(name, {})


@pytest.mark.parametrize("name", READERS)
def test_a_reader_and_its_schema_agree(name: str, tmp_path: Path) -> None:
    file, read = READERS[name]
    validator = Draft202012Validator(SCHEMAS[name])
    keys.make(tmp_path / "key")
    seen = {True: 0, False: 0}

    # The same examples each time: a rare combination of options must not fail with an unrelated change.
    @settings(max_examples=70, derandomize=True)
    @given(near(SCHEMAS[name], **find_known(name)))
    def compare(value: Any) -> None:
        (tmp_path / file).write_text((json.dumps if file.endswith("json") else yaml.safe_dump)(value))
        allowed, refusal = validator.is_valid(value), None
        try:
            read(tmp_path / file)
        except ToolkitError as error:
            refusal = str(error)
        assert allowed or refusal, "the reader takes what the schema refuses"
        assert not (allowed and refusal) or re.search("|".join(RULES.values()), refusal), "the schema allows too much"
        seen[allowed and not refusal] += 1

    compare()
    assert min(seen.values()) > 5, seen
