"""Changes single values in the text of the version table, so that comments and layout stay, and draws the patch."""

import copy
import datetime as dt
import difflib
import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolkit import project
from toolkit.errors import ToolkitError
from toolkit.versions import numbers, table

_WIDTH = 119
_PLAIN = re.compile(r"\d+(\.\d+){2,}(\.post\d+)?")
"""Versions that YAML reads as text without quotes."""

_WITHIN = r"(?<=[\s{,])"
_UNORDERED = {"sources", "advisories"}
_BLOCKS = {"tensorflow", "advisories"}
"""Sections whose new rows have a line for each field."""

_HEAD = re.compile(r'^  "?([\w.-]+)"?:', re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """A new value in the table. ``path``: section, row, field and name in the field; or less of it."""

    path: tuple[str, ...]
    value: Any  # None removes a field


def apply(text: str, changes: Iterable[Change]) -> str:
    """Return the table's text with the changes. Raises ToolkitError if it would be no table, or differ elsewhere."""
    data, changed = table.read_yaml(text), text
    for change in changes:
        changed = _edit(changed, change)
        _set(data, change)
    try:
        table.build_table(data)
        equal = table.read_yaml(changed) == data
    except table.BROKEN as error:
        raise ToolkitError(
            "a change would break the version table",
            why=f"{type(error).__name__}: {error}",
            remedy="change it by hand",
        ) from error
    if not equal:
        raise ToolkitError("the version table cannot be edited line by line", remedy="change it by hand")
    return changed


def draw(path: Path, before: str, after: str) -> str:
    """Return the patch between two texts of a file, which ``git apply`` takes; empty if they are equal."""
    name = path.relative_to(project.ROOT).as_posix()
    old, new = (text.splitlines(keepends=True) for text in (before, after))
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def _set(data: dict[str, Any], change: Change) -> None:
    *above, name = change.path
    for line in above:
        data = data[line]
    if change.value is None:
        del data[name]
    else:
        data[name] = copy.deepcopy(change.value)


def _edit(text: str, change: Change) -> str:
    section, *rest = change.path
    if not rest:
        return re.sub(rf"^{section}: .*$", f"{section}: {_render(change.value)}", text, flags=re.MULTILINE)
    start, end = _find_section(text, section)
    key, *fields = rest
    rows = {match[1]: start + match.start() for match in _HEAD.finditer(text[start:end])}
    if key not in rows:
        place = end if section in _UNORDERED else _find_place(rows, key, end)
        return text[:place] + _render_row(section, key, change.value) + text[place:]
    after = min((place for place in rows.values() if place > rows[key]), default=end)
    row = text[rows[key] : after]
    return text[: rows[key]] + _edit_row(row, fields, change.value) + text[after:]


def _find_section(text: str, name: str) -> tuple[int, int]:
    head = re.search(rf"^{name}:\n", text, re.MULTILINE)
    start = head.end() if head else len(text)
    ending = re.compile(r"^(?! )", re.MULTILINE).search(text, start)
    return start, ending.start() if ending else len(text)


def _find_place(rows: Mapping[str, int], key: str, end: int) -> int:
    newer = (place for version, place in rows.items() if numbers.parse(version) > numbers.parse(key))
    return min(newer, default=end)


def _edit_row(row: str, fields: list[str], value: Any) -> str:
    block = bool(re.search(r"^    \w+: ", row, re.MULTILINE))
    start, end = _find_value(row, "^    " if block else _WITHIN, fields[0])
    for name in fields[1:]:
        inner = _find_value(row[start:end], _WITHIN, name)
        start, end = start + inner[0], start + inner[1]
    is_there, name = start >= 0, fields[-1]
    if not is_there:  # a new field goes before the last one, which every row has
        start = end = row.rindex("    sources: " if block else "sources: ")
    if block and len(fields) == 1:
        line = "" if value is None else _render_field(name, value)
        return row[: row.rindex("\n", 0, start) + 1] + line + row[end + is_there :]
    shown = value if isinstance(value, str) and _PLAIN.fullmatch(value) else _render(value)
    return row[:start] + (shown if is_there else f"{name}: {shown}, ") + row[end:]


def _find_value(text: str, before: str, name: str) -> tuple[int, int]:
    match = re.search(rf"{before}{re.escape(name)}: *", text, re.MULTILINE)
    if not match:
        return -1, -1
    depth = 0
    for place, character in enumerate(text[match.end() :], match.end()):
        depth += (character in "[{") - (character in "]}")
        if depth < 0 or (depth == 0 and character in ",\n"):
            return match.end(), place
    return match.end(), len(text)


def _render_row(section: str, key: str, row: Mapping[str, Any]) -> str:
    if section in _BLOCKS:
        return f"  {_render(key) if key[0].isdigit() else key}:\n" + "".join(
            _render_field(name, value) for name, value in row.items()
        )
    return f"  {_render(key) if key[0].isdigit() else key}: {_render(row)}\n"


def _render_field(name: str, value: Any) -> str:
    head = f"    {name}: "
    # Lines break between the items of a list, not within one.
    items = [_render(item).replace(" ", "\0") for item in value] if isinstance(value, list) else []
    text = head + (f"[{', '.join(items)}]" if items else _render(value))
    deeper = " " * (len(head) + 1)
    filled = textwrap.fill(text, _WIDTH, subsequent_indent=deeper, break_on_hyphens=False, break_long_words=False)
    return filled.replace("\0", " ") + "\n"


def _render(value: Any) -> str:
    match value:
        case Mapping():
            return "{" + ", ".join(f"{name}: {_render(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_render(item) for item in value) + "]"
        case dt.date():
            return value.isoformat()
        case str() if re.fullmatch(r"[a-z][\w.-]*|[0-9a-f]{40,}", value) and table.read_yaml(value) == value:
            return value
    return json.dumps(value)
