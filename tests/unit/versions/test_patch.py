import subprocess
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkit import project
from toolkit.errors import ToolkitError
from toolkit.versions import patch, table
from toolkit.versions.patch import Change

TEXT = table.PATH.read_text()
DATA = table.read_yaml(TEXT)
HASH = "0" * 63 + "1"
COMMENTS = [line for line in TEXT.splitlines() if line.lstrip().startswith("#")]
VERSION = st.lists(st.integers(0, 99), min_size=3, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))


def _list_changes() -> st.SearchStrategy[Change]:
    def pick(*path: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Change]:
        return value.map(lambda given: Change(path, given))

    keys = {name: st.lists(st.sampled_from(list(DATA[name])), min_size=1, unique=True) for name in ("cuda", "cudnn")}
    rows = st.sampled_from(list(DATA["tensorflow"])).flatmap(
        lambda row: st.one_of(
            pick("tensorflow", row, "nccl", value=VERSION),
            pick("tensorflow", row, "python", value=st.lists(VERSION, min_size=1)),
            pick("tensorflow", row, "and_cuda", value=st.fixed_dictionaries({"cuda": VERSION, "cudnn": VERSION})),
            *(pick("tensorflow", row, name, value=value) for name, value in keys.items()),
        )
    )
    complete = [row for row, value in DATA["cuda"].items() if "components" in value]
    cuda = st.sampled_from(complete).flatmap(
        lambda row: st.sampled_from(list(DATA["cuda"][row]["components"])).flatmap(
            lambda name: pick("cuda", row, "components", name, value=VERSION)
        )
    )
    cudnn = st.sampled_from(list(DATA["cudnn"])).flatmap(lambda row: pick("cudnn", row, "wheel", value=VERSION))
    new = VERSION.filter(lambda key: key not in DATA["cudnn"]).map(
        lambda key: Change(("cudnn", key), {"redist": HASH, "sources": ["index"]})
    )
    return st.one_of(rows, cuda, cudnn, new, pick("updated", value=st.dates()))


@settings(max_examples=15)
@given(changes=st.lists(_list_changes(), max_size=4, unique_by=lambda change: change.path))
def test_a_patched_table_differs_in_the_named_values_alone(changes: list[Change]) -> None:
    after = patch.apply(TEXT, changes)
    found = table.read_yaml(after)
    for path, value in ((change.path, change.value) for change in changes):
        place = found
        for name in path[:-1]:
            place = place[name]
        assert place[path[-1]] == value
        patch._set(found, Change(path, _get(DATA, path)))
    assert found == DATA
    assert [line for line in after.splitlines() if line.lstrip().startswith("#")] == COMMENTS


def _get(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        data = data.get(name) if data else None
    return data


NEW = Change(
    ("tensorflow", "2.21.1"),
    {
        "tested": False,
        "candidate": "2.21.1rc0",
        "python": ["3.10", "3.11"],
        "missing": [
            "what nobody has read yet",
            *(f"and {number} more, so that the line is too long" for number in range(5)),
        ],
        "sources": ["index"],
    },
)


def test_a_patch_is_taken_by_git(tmp_path: Path) -> None:
    changes = [
        NEW,
        Change(("tensorflow", "2.22.0", "candidate"), None),
        Change(("sources", "tags"), {"what": "tags", "date": date(2026, 12, 1)}),
        Change(("sources", "index", "date"), date(2026, 12, 1)),
    ]
    after = patch.apply(TEXT, changes)
    path = tmp_path / table.PATH.relative_to(project.ROOT)
    path.parent.mkdir(parents=True)
    path.write_text(TEXT)
    subprocess.run(
        ["git", "apply", "-"], cwd=tmp_path, input=patch.draw(table.PATH, TEXT, after), text=True, check=True
    )
    assert path.read_text() == after
    found = table.load_table(path)
    assert list(found.incomplete) == ["2.21.1", "2.22.0"]
    assert found.incomplete["2.21.1"].missing[0] == "what nobody has read yet"
    assert found.sources["tags"].date == found.sources["index"].date == "2026-12-01"
    assert all(f'"{each}"' in after for each in found.incomplete["2.21.1"].missing)
    assert max(map(len, after.splitlines())) <= max(map(len, TEXT.splitlines()))


def test_equal_texts_have_no_patch() -> None:
    assert patch.apply(TEXT, []) == TEXT
    assert not patch.draw(table.PATH, TEXT, TEXT)


@pytest.mark.parametrize(
    "change",
    [
        Change(("tensorflow", "2.20.0", "bazel"), "99.0.0"),
        Change(("tensorflow", "2.20.0", "cuda"), ["99.0.0"]),
        Change(("tensorflow", "2.20.0", "color"), "green"),
        Change(("cudnn", "99.0.0"), {"redist": "abc", "sources": ["index"]}),
    ],
)
def test_a_change_that_breaks_the_table_is_refused(change: Change) -> None:
    with pytest.raises(ToolkitError, match="would break the version table"):
        patch.apply(TEXT, [change])


def test_a_change_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ToolkitError, match="cannot be edited line by line"):
        patch.apply(TEXT, [Change(("nowhere",), "x")])
