"""Makes values that a schema allows, and values beside them."""

import copy
import functools
import operator
import string
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st

from tools.schemas import Schema

LETTERS = string.ascii_letters + string.digits + " .:/_-"
TEXTS = st.text(LETTERS, min_size=1, max_size=8)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.floats(-3, 200) | st.just("") | TEXTS,
    lambda each: st.lists(each, max_size=2) | st.dictionaries(TEXTS, each, max_size=2),
    max_leaves=3,
)
MOST = 3
"""Names that an object has beside those that it needs: readers refuse most combinations of many."""


class Maker:
    """Makes strategies from a schema; ``known`` are strategies of some properties by their names."""

    def __init__(self, root: Schema, known: Mapping[str, st.SearchStrategy[Any]]) -> None:
        self.root, self.known = root, known

    def make(self, schema: Schema) -> st.SearchStrategy[Any]:
        if "$ref" in schema:
            return self.make(functools.reduce(operator.getitem, schema["$ref"].split("/")[1:], self.root))
        if "anyOf" in schema:
            return st.one_of([self.make(each) for each in schema["anyOf"]])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum") or [schema["const"]])
        kinds = schema.get("type", "null")
        return st.one_of([self._make(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)])

    def _make(self, kind: str, schema: Schema) -> st.SearchStrategy[Any]:  # noqa: PLR0911 (a kind a line)
        match kind:
            case "object":
                return self._make_object(schema)
            case "array" if "prefixItems" in schema:
                return st.tuples(*map(self.make, schema["prefixItems"])).map(list)
            case "array":
                return st.lists(self.make(schema["items"]), min_size=schema.get("minItems", 0), max_size=2)
            case "integer":
                return st.integers(schema.get("minimum", -2), min(schema.get("maximum", 300), 300))
            case "number":
                least, most = (schema.get(f"exclusive{name}") for name in ("Minimum", "Maximum"))
                return st.floats(
                    schema.get("minimum", -2) if least is None else least,
                    schema.get("maximum", 300) if most is None else most,
                    exclude_min=least is not None,
                    exclude_max=most is not None,
                )
            case "string" if schema.get("pattern", "[0-9]") != "[0-9]":
                return st.from_regex(schema["pattern"].replace("$", r"\Z"))
            case "string" if "pattern" in schema:
                return st.integers(0, 300).map(str) | st.floats(0, 1).map(str) | TEXTS
            case "string":
                return TEXTS | st.just("") if "minLength" not in schema else TEXTS
            case "boolean":
                return st.booleans()
        return st.none()

    def _make_object(self, schema: Schema) -> st.SearchStrategy[Any]:
        more = schema.get("additionalProperties", {})
        drawn = {name: self.make(each) for name, each in schema.get("properties", {}).items()}
        inner = {name: self.known.get(name, each) for name, each in drawn.items()}
        required = {name: inner.pop(name) for name in schema.get("required", ())}
        others = st.just({}) if more is False else st.dictionaries(TEXTS, self.make(more) if more else JUNK, max_size=2)
        names = st.lists(st.sampled_from(sorted(inner)), max_size=MOST, unique=True) if inner else st.just([])
        chosen = names.flatmap(lambda given: st.fixed_dictionaries({name: inner[name] for name in given}))
        return st.tuples(others, st.fixed_dictionaries(required), chosen).map(
            lambda parts: parts[0] | parts[1] | parts[2]
        )


@st.composite
def near(draw: st.DrawFn, schema: Schema, **known: st.SearchStrategy[Any]) -> Any:
    """Draw a value that a schema allows, half of the time with one part lost, added or replaced."""
    value = draw(Maker(schema, known).make(schema))
    if draw(st.booleans()):
        return value
    holder = {"whole": copy.deepcopy(value)}
    inside, name = draw(st.sampled_from(list(_list_places(holder))))
    match draw(st.sampled_from(["replace", "add", "lose"])):
        case "lose" if inside is not holder:
            del inside[name]
        case "add" if isinstance(inside[name], dict):
            inside[name][draw(TEXTS)] = draw(JUNK)
        case _:
            inside[name] = draw(JUNK)
    return holder["whole"]


def _list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    names = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield value, name
        yield from _list_places(value[name])
