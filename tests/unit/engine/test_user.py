import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from toolkit.base.errors import DataError, PreflightError
from toolkit.engine import Job, Mount, container
from toolkit.engine.user import SAME, Users, choose, chown_job_files, make_caches, redirect_cache

ALICE = (4321, 4322)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "cat").mkdir(parents=True)
    (folder / "cat" / "1.png").write_bytes(b"")
    for path in (folder, folder / "cat"):
        path.chmod(0o700)
    (folder / "cat" / "1.png").chmod(0o600)
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def give(top: Path, owner: tuple[int, int] = ALICE) -> None:
    for path in [top, *top.rglob("*")]:
        os.chown(path, *owner)


def plan(data: Path, *mounts: Mount) -> Job:
    read = Mount(source=data, target="/local")
    return Job(title="test", argv=("--data-dir", read), mounts=(*mounts, read))


def write(folder: Path) -> Mount:
    return Mount(source=folder, target="/out", writable=True)


def list_owners(*tops: Path) -> list[tuple[int, int, int]]:
    found = [path.stat() for top in tops for path in [top, *sorted(top.rglob("*"))]]
    return [(each.st_uid, each.st_gid, each.st_mode) for each in found]


@needs_root
def test_root_in_its_own_folders_reads_private_data_by_plain_ownership(data: Path, runs: Path) -> None:
    before = list_owners(data, runs)
    asked = container.describe(plan(data, write(runs / "new" / "run")), image="i")
    assert asked.user == "0:0"
    assert asked.cap_drop == ("ALL",)
    assert asked.security_opt == ("no-new-privileges",)
    assert asked.read_only
    assert list_owners(data, runs) == before


@needs_root
def test_what_root_writes_in_a_folder_of_another_is_written_as_its_owner(data: Path, runs: Path) -> None:
    give(runs)
    give(data)
    assert choose(plan(data, write(runs / "new" / "run")), SAME).ids == "4321:4322"


@needs_root
def test_data_that_the_owner_of_the_outputs_may_not_read_is_refused_before_anything_starts(
    data: Path, runs: Path
) -> None:
    give(runs)
    job = plan(data, write(runs / "run"))
    with pytest.raises(DataError) as caught:
        container.list_commands(job, image="i")
    assert caught.value.what == f"a container cannot read {data}"
    assert "it belongs to root, group root, and has mode 0700" in caught.value.why
    assert f"runs as uid 4321, the owner of {runs}" in caught.value.why
    assert "chmod -R a+rX" in caught.value.remedy
    for folder in (data, data / "cat"):
        folder.chmod(0o755)
    with pytest.raises(DataError, match=r"1\.png"):
        choose(job, SAME)
    (data / "cat" / "1.png").chmod(0o644)
    (data / ".hidden").mkdir(mode=0o700)
    (data / "link").symlink_to("/etc/shadow")
    assert choose(job, SAME).uid == 4321


@needs_root
def test_a_cache_of_another_user_gets_a_folder_for_this_one(data: Path, runs: Path, tmp_path: Path) -> None:
    cache = Mount(source=tmp_path / "cache", target="/data", writable=True, shared=True)
    own = choose(plan(data, write(runs), cache), SAME)
    assert redirect_cache(cache, own) == cache
    cache.source.mkdir()
    give(runs)
    give(data)
    job = plan(data, write(runs / "run"), cache)
    other = choose(job, SAME)
    make_caches(job, other)
    folder = redirect_cache(cache, other).source
    assert folder == cache.source / "uid-4321"
    assert (folder.stat().st_uid, cache.source.stat().st_uid) == (4321, 0)
    assert (str(folder), "/data", False) in container.describe(job, image="i").mounts


def test_an_ordinary_user_gets_its_ids_and_the_groups_that_own_what_it_uses(
    data: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 1235)
    monkeypatch.setattr(os, "getgroups", lambda: [1235, data.stat().st_gid, 998])
    asked = container.describe(plan(data, write(runs)), image="i")
    assert (asked.user, asked.groups) == ("1234:1235", (str(data.stat().st_gid),))
    assert asked.to_sdk()["group_add"] == list(asked.groups)
    assert asked.to_command()[asked.to_command().index("--group-add") + 1] == asked.groups[0]


def test_root_of_a_rootless_engine_is_the_user_who_started_it(
    data: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    owner = (data.stat().st_uid, data.stat().st_gid)
    assert choose(plan(data, write(runs / "run")), Users(rootless=True, owner=owner)).ids == "0:0"


def test_what_the_user_of_a_rootless_engine_may_not_use_is_refused(data: Path, runs: Path) -> None:
    other = Users(rootless=True, owner=(data.stat().st_uid + 7, data.stat().st_gid + 7))
    with pytest.raises(DataError, match="cannot read") as caught:
        choose(plan(data, write(runs / "run")), other)
    assert "whose engine is rootless" in caught.value.why
    for path in [data, *data.rglob("*")]:
        path.chmod(0o755)
    with pytest.raises(PreflightError, match=f"cannot write in {runs}") as refused:
        choose(plan(data, write(runs / "run")), other)
    assert refused.value.exit_code == 4
    assert choose(plan(data, write(runs / "run")), replace(other, owner=None)).ids == "0:0", "of another machine"


@needs_root
def test_roots_job_on_the_host_leaves_what_it_wrote_to_the_owners_of_the_folders(runs: Path) -> None:
    """A folder of the user that was there before keeps its owner, and so does all beside what the job wrote."""
    for name in ("alice", "alice/own", "out", "alice/run"):
        (runs / name).mkdir()
    (runs / "alice" / "old").touch()
    give(runs / "alice")
    for name in ("alice/old", "alice/own"):
        os.chown(runs / name, 0, 0)
    since = time.time() + 0.05
    time.sleep(0.1)
    for name in ("alice/run/checkpoints", "alice/export"):
        (runs / name).mkdir()
    for name in ("alice/run/file", "alice/run/checkpoints/1", "alice/export/model", "alice/beside", "out/result"):
        (runs / name).touch()
    (runs / "alice" / "run" / "link").symlink_to("/etc/passwd")
    (runs / "secret").touch()
    os.link(runs / "secret", runs / "alice" / "run" / "name of a secret")
    place = Mount(source=runs / "alice" / "export", target="/out/export")
    export = Job(title="export", argv=(place,), mounts=(Mount(source=runs / "alice", target="/out", writable=True),))
    for job in (plan(runs, write(runs / "alice" / "run")), export, plan(runs, write(runs / "out"))):
        chown_job_files(job, since)
    of_root = {str(path.relative_to(runs)) for path in runs.rglob("*") if path.lstat().st_uid == 0}
    linked = {"secret", "alice/run/name of a secret"}
    assert of_root == {"alice/old", "alice/own", "alice/beside", "out", "out/result", *linked}
    assert Path("/etc/passwd").stat().st_uid == 0
