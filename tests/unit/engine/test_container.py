"""What a container is given: as little as it needs. A pure function, so every rule can be looked at."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.engine import Job, Mount
from toolkit.engine.container import describe
from toolkit.engine.ownership import IMAGE_USER, lending


def _job(**changes: object) -> Job:
    return Job(**{"title": "test", "argv": ("-c", "pass"), **changes})  # type: ignore[arg-type]


def test_everything_is_taken_away() -> None:
    asked = describe(_job(), image="i", terminal=False)
    assert asked["read_only"]
    assert asked["cap_drop"] == ["ALL"]
    assert asked["security_opt"] == ["no-new-privileges"]
    assert asked["network_mode"] == "none"
    assert asked["device_requests"] is None
    assert asked["pids_limit"]
    assert asked["init"]
    assert not asked["user"].startswith("0:")


def test_what_is_asked_for_is_given_and_no_more(tmp_path: Path) -> None:
    mounts = (Mount(source=tmp_path, target="/in"), Mount(source=tmp_path / "out", target="/out", writable=True))
    asked = describe(_job(mounts=mounts, argv=("x", mounts[0]), network=True, gpu=True), image="i", terminal=False)
    assert asked["command"] == ["x", "/in"]
    assert asked["network_mode"] == "bridge"
    assert asked["device_requests"][0]["Capabilities"] == [["gpu"]]
    seen = [(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in asked["mounts"]]
    assert seen == [(str(tmp_path), "/in", True), (str(tmp_path / "out"), "/out", False)]


@given(st.lists(st.text()))
def test_no_argument_becomes_two(arguments: list[str]) -> None:
    asked = describe(_job(argv=tuple(arguments)), image="i", terminal=False)
    assert asked["command"] == arguments
    assert asked["entrypoint"] == ["python"]


def test_neither_the_host_nor_the_engine_is_mounted() -> None:
    asked = describe(_job(), image="i", terminal=False)
    assert asked["mounts"] == []


def test_root_lends_folders_and_takes_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[tuple[str, int, bool]] = []

    def chown(path: Path, uid: int, _gid: int, *, follow_symlinks: bool) -> None:
        changes.append((Path(path).name, uid, follow_symlinks))
        if Path(path).name == "gone":
            raise FileNotFoundError

    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to("/etc/passwd")
    (tmp_path / "run" / "gone").touch()
    (tmp_path / "cache").mkdir()
    run = Mount(source=tmp_path / "run", target="/runs", writable=True)
    cache = Mount(source=tmp_path / "cache", target="/data", writable=True, shared=True)
    owner = tmp_path.stat().st_uid
    lent: set[tuple[str, int, bool]] = set()

    def interrupted() -> None:
        with lending([run, cache, Mount(source=tmp_path, target="/in")]):
            lent.update(changes)
            changes.clear()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lent == {(name, IMAGE_USER, False) for name in ("run", "link", "gone", "cache")}
    assert set(changes) == {(name, owner, False) for name in ("run", "link", "gone")}
