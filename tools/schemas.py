"""The JSON schemas of files: ``python -m tools.schemas`` writes them, and a test compares them.

They are made from the declarations that the readers use. The number at the end of `$id` is in `VERSIONS`. It rises when
a file that was valid is valid no longer, or means something else; a new name that may be left out does not raise it. A
record also names its number in its field `schema`, so both rise together.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from toolkit import records
from toolkit.base import manifest, signing, steps
from toolkit.graft.transplant import Outcome
from toolkit.versions import lock, settings
from toolkit.wheel.inspection import Audit, Inspection
from train.config.configuration import OPTIONS, TrainConfig
from train.config.option import Option
from train.record import reader
from train.system.progress import Mode

FOLDER: Final = Path(__file__).parents[1] / "toolkit" / "schemas"
VERSIONS: Final = {
    "config": 1,
    "lock": lock.SCHEMA,
    "manifest": manifest.SCHEMA,
    "plan": steps.SCHEMA,
    "policy": 2,
    "run": reader.SCHEMA,
    "settings": 2,
}
TITLES: Final = {
    "config": "Configuration of a run: config.yaml in its folder.",
    "lock": "Pins of a build: toolkit.lock.yaml.",
    "manifest": "Record of a wheel, graft, environment or image: manifest.json in its folder.",
    "plan": "Plan: plan.json beside a wheel, and `plan` in what --dry-run --json prints.",
    "policy": "Policy of who may sign what, for --trust.",
    "run": "Record of a run: manifest.json in its folder.",
    "settings": "Settings of all commands: toolkit.yaml.",
}

Schema = dict[str, Any]
_SIMPLE: Final = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_ANY: Final = {"type": "object"}


def generate() -> dict[str, str]:
    """Return the text of each schema by its name."""
    makers = {
        "config": _describe_config,
        "lock": _describe_lock,
        "manifest": _describe_manifest,
        "plan": _describe_plan,
        "policy": _describe_policy,
        "run": _describe_run,
        "settings": _describe_settings,
    }
    return {name: _write(name, make()) for name, make in makers.items()}


def _write(name: str, schema: Schema) -> str:
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:x-tensorflow-toolkit:schema:{name}:v{VERSIONS[name]}",
        "title": TITLES[name],
    }
    return _lay_out(head | schema) + "\n"


def _lay_out(value: Any, indent: str = "") -> str:
    """Return JSON with each part on one line if it fits."""
    line, more = json.dumps(value), f"{indent}  "
    if not isinstance(value, dict) or (indent and len(line) < 100):
        return line
    parts = (f"{more}{json.dumps(name)}: {_lay_out(part, more)}" for name, part in value.items())
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def describe(kind: Any) -> Schema:
    """Return the schema of a type, as JSON has its values. Of a dataclass, names may be missing and others be there."""
    origin, parts = get_origin(kind), get_args(kind)
    schema: Schema = {}
    if kind in _SIMPLE:
        schema = {"type": _SIMPLE[kind]}
    elif origin is Literal:
        schema = {"enum": list(parts)}
    elif origin is UnionType:
        schema = {"anyOf": [describe(part) for part in parts]}
    elif origin is tuple and parts[-1] is not ...:
        schema = {"type": "array", "prefixItems": [describe(part) for part in parts], "items": False}
        schema["minItems"] = len(parts)
    elif origin in {tuple, list, Sequence}:
        schema = {"type": "array", "items": describe(parts[0])}
    elif origin in {dict, Mapping}:
        schema = {"type": "object", "additionalProperties": describe(parts[1])}
    elif is_dataclass(kind):
        schema = {"type": "object", "properties": _describe_fields(kind)}
    return schema


def _describe_fields(kind: Any) -> dict[str, Schema]:
    hints = get_type_hints(kind)
    return {each.name: describe(hints[each.name]) for each in fields(kind)}


def _close(schema: Schema, required: Sequence[str] = ()) -> Schema:
    more = {"required": list(required)} if required else {}
    return schema | more | {"additionalProperties": False}


def _describe_settings() -> Schema:
    names = {name: _describe_setting(each) for name, each in settings.OPTIONS.items() if name in settings.SHARED}
    return {"type": ["object", "null"], "properties": names, "additionalProperties": False}


def _describe_setting(setting: Field[str]) -> Schema:
    schema: Schema = {"type": ["string", "null"]}
    kinds = {"engine": settings.EngineName, "platform": settings.PlatformName, "progress": Mode}
    if choices := kinds.get(setting.name):
        schema = {"enum": [*get_args(choices), None]}
    elif setting.default != "":
        schema["minLength"] = 1
    default = {} if setting.default is MISSING else {"default": setting.default}
    return {"description": setting.metadata["help"], **schema, **default}


def _limit(option: Option) -> Schema:
    limits = {
        "minimum": option.least,
        "maximum": option.most,
        "exclusiveMinimum": option.above,
        "exclusiveMaximum": option.below,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _describe_config() -> Schema:
    hints = get_type_hints(TrainConfig)
    names = {}
    for name, option in OPTIONS.items():
        text = {"description": option.help} if option.help else {}
        names[name] = text | describe(hints[name]) | _limit(option)
    required = [each.name for each in fields(TrainConfig) if each.default is MISSING]
    return _close({"type": "object", "properties": names}, required)


def _describe_run() -> Schema:
    kinds = {dict: _ANY, str: {"type": "string"}}
    parts = {
        "schema": {"const": reader.SCHEMA},
        "kind": {"const": "run"},
        **{name: kinds[kind] for name, kind in reader.PARTS.items()},
        "parent": {"description": "What it was made with, with its digest."} | describe(dict[str, Any] | None),
    }
    config = {"config": {"description": "As in config.yaml."} | _describe_config()}
    required = ["schema", "kind", *reader.PARTS]
    return {"type": "object", "properties": parts | config, "required": required}


def _describe_lock() -> Schema:
    parts = {"schema": {"const": lock.SCHEMA}} | {each.name: _TEXTS for each in fields(lock.Lock)}
    required = ["schema", *(each.name for each in fields(lock.Lock) if each.default_factory is MISSING)]
    return {"type": "object", "properties": parts, "required": required}


def _describe_plan() -> Schema:
    step = _close({"type": "object", "properties": (names := _describe_fields(steps.Step))}, list(names))
    parts = {"schema": {"const": steps.SCHEMA}, "steps": {"type": "array", "items": step}}
    return {"type": "object", "properties": parts, "required": list(parts)}


def _describe_policy() -> Schema:
    parts = {
        "name": {"description": "What messages call the signer.", "type": "string"},
        "key": {"description": "File of the public key, relative to this file.", "type": "string"},
        "may": {
            "description": "What its signature is good for.",
            "type": "array",
            "minItems": 1,
            "items": {"enum": list(records.list_signed())},
        },
    }
    names = [each.name for each in fields(signing.Signatory)]
    signer = _close({"type": "object", "properties": {name: parts[name] for name in names}}, names)
    signers = {"type": "array", "minItems": 1, "items": signer}
    return _close({"type": "object", "properties": {"signers": signers}}, ["signers"])


def _describe_manifest() -> Schema:
    """Return the schema of records. The facts of a wheel have types here, for programs; its reader takes any facts."""
    parts = {"schema": {"const": manifest.SCHEMA}} | _describe_fields(manifest.Manifest)
    required = [each.name for each in fields(manifest.Manifest) if each.default is each.default_factory is MISSING]
    wheel = {
        "plan": {"type": "string"},
        "lock": _describe_lock(),
        "level": {"type": "string"},
        "floating": describe(list[str]),
        "inspection": describe(Inspection),
        "auditwheel": describe(Audit),
        "requires": describe(dict[str, str]),
        "graft": describe(Outcome),
        "command": describe(list[str]),
        "seconds": {"type": "number"},
        "host": describe(dict[str, str]),
    }
    return {
        "type": "object",
        "properties": parts,
        "required": ["schema", *required],
        "if": {"properties": {"kind": {"const": "wheel"}}},
        "then": {"properties": {"facts": {"properties": wheel}}},
    }


if __name__ == "__main__":
    for name, text in generate().items():
        (FOLDER / f"{name}.json").write_text(text)
