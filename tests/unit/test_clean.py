import json
from pathlib import Path

import pytest

from tests.command import Run
from toolkit.base import naming
from toolkit.engine import local
from toolkit.records import clean

NAME = "environment-cpu-0123456789ab"


def _make(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    (folder / name / "manifest.json").write_text("{}")
    return folder / name


def test_only_names_of_ours_are_found(tmp_path: Path) -> None:
    ours = [NAME, "environment-cuda-12.6.1-0123456789ab", "image-train-cpu-0123456789ab", "wheel-0123456789ab"]
    ours += ["workers-digits-bc-22-12-f17b0ed5"]
    for name in (*ours, "extension", "digits-bc-22-12-f17b0ed5", "environment-mine"):
        _make(tmp_path, name)
    for name in ("poetry.lock", "Cargo.lock"):
        (tmp_path / name).touch()
    (tmp_path / "image-train-cpu-ffffffffffff").symlink_to(_make(tmp_path / "elsewhere", "thesis"))
    assert sorted(Path(item.name).name for item in clean.find(None, tmp_path)) == sorted(ours)


def test_an_environment_in_use_is_kept(tmp_path: Path) -> None:
    folder = _make(tmp_path, NAME)
    with local.using(folder):
        (item,) = clean.find(None, tmp_path)
        assert item.used
    (item,) = clean.find(None, tmp_path)
    assert not item.used


def test_what_killed_commands_left_is_removed_and_runs_are_kept(run: Run) -> None:
    kept = [
        _make(run.folder / "runs", name) for name in ("digits-bc-22-12-f17b0ed5", "digits-bc-22-12-f17b0ed5-again-1")
    ]
    left = [_make(run.folder / folder, ".0123456789ab.aaaaaaaa") for folder in ("runs", "dist")]
    done = run("clean", "--yes", "--json", DOCKER_HOST="unix:///nonexistent.sock")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["removed"]) == 2
    assert all(path.is_dir() for path in kept)
    assert not any(path.exists() for path in left)


def test_native_kernels_are_listed_and_removed_with_the_caches(run: Run, tmp_path: Path) -> None:
    cache = tmp_path / "user/toolkit/kernels"
    _make(cache, ".build-running")
    (cache / "kernels-0123.so").write_bytes(bytes(2_000_000))
    variables = {"XDG_CACHE_HOME": str(tmp_path / "user"), "DOCKER_HOST": "unix:///nonexistent.sock"}
    named = f"kernels {cache} (2.0 MB)"
    left = json.loads(run("clean", "--json", **variables).stdout)["left"]
    assert left == [f"{named}: --with-cache removes them"]
    assert json.loads(run("clean", "--with-cache", "--yes", "--json", **variables).stdout)["removed"] == [named]
    assert [path.name for path in cache.iterdir()] == [".build-running"], "a job may be building there"
    assert not json.loads(run("clean", "--json", **variables).stdout)["left"]


PLAN = "sha256:0123456789ab" + "0" * 52


@pytest.mark.parametrize(
    ("name", "plan", "given"),
    [
        ("toolkit/train:cpu-0123456789ab", PLAN, True),
        ("toolkit/runtime:cuda-12.6.1-0123456789ab", PLAN, True),
        ("toolkit/train:compose-cpu", "", True),
        ("toolkit/bazel:debian", "", True),
        (naming.name_standin("3.13"), "", True),
        ("toolkit/base:python3.11-bookworm", "", True),
        ("toolkit/base:python3.11-mine", "", False),
        # An image that a user builds FROM one of the toolkit's inherits its labels, whatever its name.
        ("toolkit/my-app:1", PLAN, False),
        ("toolkit/train:mine", PLAN, False),
        ("toolkit/train:cpu-ffffffffffff", PLAN, False),
        ("somebody/train:cpu-0123456789ab", PLAN, False),
        ("toolkit/train:cpu-0123456789ab", "", False),
    ],
)
def test_only_names_that_we_give_are_ours(name: str, plan: str, given: bool) -> None:
    assert naming.is_given(name, plan) is given
