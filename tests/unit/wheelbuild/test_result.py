import hashlib
import json
from pathlib import Path

import pytest
from wheelbuild import result


def write_events(folder: Path, *uris: str) -> Path:
    sets = [{"namedSetOfFiles": {"files": [{"name": "x", "uri": uri}]}} for uri in uris]
    events = folder / "events.json"
    events.write_text("".join(json.dumps(event) + "\n" for event in [{"started": {}}, *sets, {"finished": {}}]))
    return events


def test_the_wheel_of_this_run_is_found(tmp_path: Path) -> None:
    events = write_events(tmp_path, "file:///out/wheel_house/tensorflow-2.19.0%2Bx-cp311.whl", "file:///out/other.so")
    assert result.read_wheel_event(events) == Path("/out/wheel_house/tensorflow-2.19.0+x-cp311.whl")


def test_older_versions_declare_the_folder_only(tmp_path: Path) -> None:
    house = tmp_path / "wheel_house"
    house.mkdir()
    (house / "a.whl").touch()
    assert result.read_wheel_event(write_events(tmp_path, house.as_uri())) == house / "a.whl"


@pytest.mark.parametrize("uris", [[], ["file:///a.whl", "file:///b.whl"], ["bytestream://far/blobs/1"]])
def test_anything_but_one_wheel_is_an_error(uris: list[str], tmp_path: Path) -> None:
    with pytest.raises(result.ResultError, match="where one was expected"):
        result.read_wheel_event(write_events(tmp_path, *uris))


def test_sums_cover_every_file(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    result.write_sums(tmp_path)
    result.write_sums(tmp_path)
    expected = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a", "b")]
    assert (tmp_path / "SHA256SUMS").read_text().splitlines() == expected
