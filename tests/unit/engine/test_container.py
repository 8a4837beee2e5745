"""What a container is given: as little as it needs. A pure function, so every rule can be looked at."""

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
    assert asked["volumes"] == {
        str(tmp_path): {"bind": "/in", "mode": "ro"},
        str(tmp_path / "out"): {"bind": "/out", "mode": "rw"},
    }


@given(st.lists(st.text()))
def test_no_argument_becomes_two(arguments: list[str]) -> None:
    asked = describe(_job(argv=tuple(arguments)), image="i", terminal=False)
    assert asked["command"] == arguments
    assert asked["entrypoint"] == ["python"]


def test_neither_the_host_nor_the_engine_is_mounted() -> None:
    asked = describe(_job(), image="i", terminal=False)
    assert asked["volumes"] == {}


def test_root_lends_folders_and_takes_them_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    changes: list[tuple[str, int, int]] = []
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(
        os, "chown", lambda path, uid, gid, follow_symlinks: changes.append((Path(path).name, uid, follow_symlinks))
    )
    (tmp_path / "link").symlink_to("/etc/passwd")
    owner = tmp_path.stat().st_uid
    with pytest.raises(KeyboardInterrupt), lending([tmp_path]):
        raise KeyboardInterrupt
    assert changes == [(name, uid, False) for uid in (IMAGE_USER, owner) for name in (tmp_path.name, "link")]
