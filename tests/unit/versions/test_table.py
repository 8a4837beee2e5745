from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.makers.sets import choose
from toolkit.base.errors import ToolkitError, UnsupportedError
from toolkit.versions import table
from toolkit.versions.table import load_table

TABLE = load_table()


def edit(folder: Path, change: object) -> Path:
    data = table.read_yaml(table.PATH.read_text())
    change(data)  # type: ignore[operator]
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_an_incomplete_version_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    newest = TABLE.rows()[0].version

    def begin(data: dict[str, Any]) -> None:
        data["tensorflow"]["99.0.0"] = {
            "tested": False,
            "candidate": "99.0.0rc0",
            "python": ["3.13"],
            "sources": [],
            "missing": ["a set with keras"],
        }

    with pytest.raises(UnsupportedError, match=r"99\.0\.0 is not complete") as caught:
        choose(load_table(edit(tmp_path, begin)), tensorflow="99.0.0")
    assert all(word in caught.value.why for word in ("99.0.0rc0", "a set with keras", "bazel"))
    assert caught.value.remedy == f"--tensorflow {newest}"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["tensorflow"]["2.19.0"].update(cuda=["99.0.0"]),
        lambda data: data["cudnn"]["9.5.0"].update(color="green"),
        lambda data: data["tensorflow"]["2.19.0"].pop("bazel"),
        lambda data: data["tensorflow"]["2.19.0"].update(missing=["a set"], bazel="0.1"),
        lambda data: data["failures"][0].update(when={"moon": ">=1"}),
        lambda data: data["failures"][0].update(when={"cuda": {"since": "12"}}),
        lambda data: data["cuda"]["13.0.0"]["components"].update(moon="1.0"),
        lambda data: data.pop("published"),
    ],
)
def test_broken_table_is_named(tmp_path: Path, change: object) -> None:
    with pytest.raises(ToolkitError, match="version table") as caught:
        load_table(edit(tmp_path, change))
    assert caught.value.exit_code == 1
