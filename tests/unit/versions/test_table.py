from pathlib import Path

import pytest
import yaml

from tests.makers.sets import choose
from toolkit import versions
from toolkit.base import project
from toolkit.base.errors import ToolkitError, UnsupportedError, UsageError
from toolkit.versions import table
from toolkit.versions.sets import name_wheel

TABLE = versions.load_table()


def edit(folder: Path, change: object) -> Path:
    data = table.read_yaml(table.PATH.read_text())
    change(data)  # type: ignore[operator]
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


@pytest.mark.parametrize("item", TABLE.published, ids=lambda item: item.requirements)
def test_locked_set_holds_the_components_of_its_row(item: versions.Locked) -> None:
    lines = project.locate(f"docker/requirements/{item.requirements}.txt").read_text().splitlines()
    named = [line.partition(" ")[0] for line in lines if "==" in line and not line.startswith(" ")]
    pins = dict(line.split("==") for line in named)
    name = "tensorflow" if item.cuda else "tensorflow-cpu"
    assert pins[name] == item.tensorflow
    if item.cuda:
        components = TABLE.cuda_rows[item.cuda].components
        assert components
        assert {name: pins[f"nvidia-{name}-cu12"] for name in components} == components
        assert pins["nvidia-cudnn-cu12"] == TABLE.cudnn_rows[item.cudnn].wheel
        assert pins["nvidia-nccl-cu12"] == TABLE.tensorflow(item.tensorflow).nccl
    assert pins.keys() >= {*TABLE.tensorflow(item.tensorflow).beside}


def test_locked_parts_are_those_of_their_release() -> None:
    for row in TABLE.cuda_rows.values():
        if row.parts:
            pins = project.locate(f"docker/requirements/{row.parts}.txt").read_text()
            assert f"{name_wheel('cuda-nvcc', row.version)}=={row.components['cuda-nvcc']} " in pins
            assert f"{name_wheel('cuda-runtime', row.version)}=={row.components['cuda-runtime']} " in pins


@pytest.mark.parametrize(("component", "wheel"), [("cuda-nvcc", "nvidia-cuda-nvcc"), ("cudnn", "nvidia-cudnn-cu13")])
def test_since_cuda_13_only_libraries_with_releases_of_their_own_have_a_suffix(component: str, wheel: str) -> None:
    assert name_wheel(component, "13.0.0") == wheel


def test_an_incomplete_version_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(UnsupportedError, match=r"2\.22\.0 is not complete") as caught:
        choose(TABLE, tensorflow="2.22.0")
    assert all(word in caught.value.why for word in ("2.22.0rc0", "keras-nightly", "cuDNN 9.10.2", "bazel"))
    assert caught.value.remedy == "--tensorflow 2.21.0"


def test_what_is_no_version_is_a_usage_error() -> None:
    for text in ("", "latest", "2.19.0\n", "\u0662.1", "9" * 5000, "--help"):
        with pytest.raises(UsageError):
            TABLE.tensorflow(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["tensorflow"]["2.19.0"].update(cuda=["99.0.0"]),
        lambda data: data["tensorflow"]["2.19.0"].update(sources=["hearsay"]),
        lambda data: data["cuda"]["12.6.1"].update(redist="abc"),
        lambda data: data["cudnn"]["9.5.0"].update(color="green"),
        lambda data: data["tensorflow"]["2.19.0"].pop("bazel"),
        lambda data: data["tensorflow"]["2.22.0"].update(bazel="0.1"),
        lambda data: data["tensorflow"]["2.22.0"].update(cuda=["99.0.0"]),
        lambda data: data["failures"][0].update(when={"moon": ">=1"}),
        lambda data: data["failures"][0].update(when={"cuda": ">=12 or so"}),
        lambda data: data["failures"][0].update(when={"cuda": {"since": "12"}}),
        lambda data: data["toolchains"][0].update(capabilities="c99"),
        lambda data: data["toolchains"][0].update(when={"cuda": "new"}),
        lambda data: data.pop("published"),
    ],
)
def test_broken_table_is_named(tmp_path: Path, change: object) -> None:
    with pytest.raises(ToolkitError, match="version table") as caught:
        versions.load_table(edit(tmp_path, change))
    assert caught.value.exit_code == 1


def test_missing_or_garbled_table_is_named(tmp_path: Path) -> None:
    garbled = tmp_path / "table.yaml"
    garbled.write_text("{[")
    for path in (garbled, tmp_path / "none.yaml"):
        with pytest.raises(ToolkitError, match="version table"):
            versions.load_table(path)


def test_each_advisory_has_a_dated_source_and_affects_versions_of_the_table(tmp_path: Path) -> None:
    assert {item.id for item in TABLE.list_advisories("2.18.0")} >= {"CVE-2025-55556", "CVE-2025-55559"}
    for item in TABLE.advisories.values():
        assert all(TABLE.sources[source].date for source in item.sources)
        assert not item.fixed or item.fixed in TABLE.tensorflow_rows
        assert item.severity in {"", "low", "medium", "high", "critical"}
    for change in ({"affected": ["2.17.0"]}, {"fixed": "2.18.0"}, {"sources": ["nobody"]}):
        path = edit(tmp_path, lambda data, change=change: data["advisories"]["CVE-2025-55559"].update(change))
        table.load_table.cache_clear()
        with pytest.raises(ToolkitError, match="broken"):
            table.load_table(path)
