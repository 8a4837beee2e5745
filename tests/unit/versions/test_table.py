from pathlib import Path

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


def test_an_incomplete_version_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(UnsupportedError, match=r"2\.22\.0 is not complete") as caught:
        choose(TABLE, tensorflow="2.22.0")
    assert all(word in caught.value.why for word in ("2.22.0rc0", "keras-nightly", "cuDNN 9.10.2", "bazel"))
    assert caught.value.remedy == "--tensorflow 2.21.0"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["tensorflow"]["2.19.0"].update(cuda=["99.0.0"]),
        lambda data: data["cudnn"]["9.5.0"].update(color="green"),
        lambda data: data["tensorflow"]["2.19.0"].pop("bazel"),
        lambda data: data["tensorflow"]["2.22.0"].update(bazel="0.1"),
        lambda data: data["failures"][0].update(when={"moon": ">=1"}),
        lambda data: data["failures"][0].update(when={"cuda": {"since": "12"}}),
        lambda data: data.pop("published"),
    ],
)
def test_broken_table_is_named(tmp_path: Path, change: object) -> None:
    with pytest.raises(ToolkitError, match="version table") as caught:
        load_table(edit(tmp_path, change))
    assert caught.value.exit_code == 1
