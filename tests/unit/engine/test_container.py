"""What a container is given: as little as it needs. A pure function, so every rule can be looked at."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.engine import Job, Mount, ownership
from toolkit.engine.container import describe
from toolkit.engine.ownership import IMAGE_USER


@dataclass(frozen=True)
class _Owner:
    """What ``stat`` tells of a folder's owner."""

    st_uid: int

    @property
    def st_gid(self) -> int:
        return self.st_uid


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


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """Name, new owner and whether a link was followed, of each change of owner that root makes."""
    made: list[tuple[str, int, bool]] = []

    def chown(path: Path, uid: int, _gid: int, *, follow_symlinks: bool) -> None:
        made.append((Path(path).name, uid, follow_symlinks))
        if Path(path).name == "gone":
            raise FileNotFoundError

    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "chown", chown)
    return made


def test_root_gives_folders_to_the_containers_user_for_good(
    tmp_path: Path, changes: list[tuple[str, int, bool]]
) -> None:
    """As compose does: a run that began here can go on there."""
    runs = tmp_path / "runs"
    (runs / "run").mkdir(parents=True)
    (runs / "other").mkdir()
    (runs / "run" / "link").symlink_to("/etc/passwd")
    (runs / "run" / "gone").touch()
    (tmp_path / "cache").mkdir()
    run = Mount(source=runs / "run", target="/runs", writable=True)
    cache = Mount(source=tmp_path / "cache", target="/data", writable=True, shared=True)
    ownership.give_to_container([run, cache, Mount(source=tmp_path, target="/in")])
    assert sorted(changes) == sorted((name, IMAGE_USER, False) for name in ("run", "link", "gone", "cache"))


def test_root_gives_the_folder_of_runs_too_where_it_was_made_for_this_run(
    tmp_path: Path, changes: list[tuple[str, int, bool]]
) -> None:
    """Else compose could go on with this run, and begin none beside it."""
    (tmp_path / "runs" / "run").mkdir(parents=True)
    ownership.give_to_container([Mount(source=tmp_path / "runs" / "run", target="/runs", writable=True)])
    assert changes == [("run", IMAGE_USER, False), ("runs", IMAGE_USER, False)]


def test_a_job_of_root_on_the_host_leaves_its_run_to_the_owner_of_the_runs(
    tmp_path: Path, changes: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    mount = Mount(source=tmp_path / "run", target="/runs", writable=True)
    ownership.give_to_parent([mount])
    assert changes == [], "both belong to one user already"
    real = Path.stat
    monkeypatch.setattr(
        Path, "stat", lambda self, **options: real(tmp_path / "run") if self != tmp_path else _Owner(IMAGE_USER)
    )
    ownership.give_to_parent([mount])
    assert changes == [("run", IMAGE_USER, False), ("file", IMAGE_USER, False)]


def test_only_root_changes_owners(
    tmp_path: Path, changes: list[tuple[str, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    (tmp_path / "run").mkdir()
    mount = Mount(source=tmp_path / "run", target="/runs", writable=True)
    ownership.give_to_container([mount])
    ownership.give_to_parent([mount])
    assert changes == []
