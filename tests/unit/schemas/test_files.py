import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from tests.command import Run
from tests.unit.records import maker
from tools import schemas

ROOT = Path(__file__).parents[3]
MADE = schemas.generate()


def validate(name: str, value: object) -> None:
    Draft202012Validator(json.loads(MADE[name])).validate(value)


def test_the_files_are_what_the_declarations_say() -> None:
    found = {path.stem: path.read_text() for path in schemas.FOLDER.glob("*.json")}
    assert found == MADE, "run make pins"


@pytest.mark.parametrize("name", MADE)
def test_each_is_a_schema_and_has_a_version(name: str) -> None:
    value = json.loads(MADE[name])
    Draft202012Validator.check_schema(value)
    assert re.fullmatch(rf"urn:x-tensorflow-toolkit:schema:{name}:v[1-9][0-9]*", value["$id"])
    number = value["properties"].get("schema", {}).get("const")
    assert number is None or value["$id"].endswith(f":v{number}")


def test_the_records_of_a_run_and_its_environment_keep_to_their_schemas(tmp_path: Path) -> None:
    parent = maker.describe_environment(tmp_path / "state")
    folder = maker.train(tmp_path / "runs", "--steps", "3", parent=parent)
    validate("run", record := json.loads((folder / "manifest.json").read_text()))
    validate("config", yaml.safe_load((folder / "config.yaml").read_text()))
    for name in ("config", "weights_sha256", "result"):
        with pytest.raises(ValidationError):
            validate("run", {each: value for each, value in record.items() if each != name})
    with pytest.raises(ValidationError):
        validate("run", record | {"config": record["config"] | {"epochs": "ten"}})


def test_what_a_dry_run_prints_keeps_to_its_schema(run: Run) -> None:
    done = run("build-wheel", "--dry-run", "--json")
    value = json.loads(done.stdout)["plan"]
    validate("plan", value)
    value["steps"][0]["title"] = None
    with pytest.raises(ValidationError):
        validate("plan", value)


BLOCKS = {
    f"{page.name}: {text.partition(chr(10))[0]}": yaml.safe_load(text)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for text in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    if "runs-on:" not in text  # a workflow of GitHub's
}
KINDS = {"signers": "policy", "require": "policy"}
POLICY = next(block for block in BLOCKS.values() if "signers" in block)


@pytest.mark.parametrize("place", BLOCKS)
def test_the_files_on_the_pages_keep_to_their_schemas(place: str) -> None:
    value: dict[str, Any] = BLOCKS[place]
    (name,) = {name for key, name in KINDS.items() if key in value}
    value = POLICY | value if name == "policy" else value  # a page may show a part of one
    validate(name, value)
    with pytest.raises(ValidationError):
        validate(name, value | {"comment": "x"})
