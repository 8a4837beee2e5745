import subprocess
from pathlib import Path

import pytest

from tests.makers.sets import choose
from toolkit.base import project
from toolkit.base.errors import CheckError, UsageError
from toolkit.versions import lock
from toolkit.versions.table import load_table

TABLE = load_table()
SPEC = choose(TABLE)
FULL = {"base_image": "debian", "base_digest": "sha256:" + "0" * 64, "apt_snapshot": "20261121T000000Z"}


def test_lock_holds_every_pin_of_the_chain() -> None:
    pins = lock.collect(SPEC, TABLE, **FULL).pins
    assert pins["tensorflow-commit"] == "e36baa302922ea3c7131b302c2996bd2051ee5c4"
    assert pins["bazel-sha256"].startswith("a40ac692")
    assert pins["cuda-redist-sha256"].startswith("22ddfeb8")
    assert pins["cudnn-redist-sha256"].startswith("3939f053")
    headers = project.locate("bazel_patches/headers")
    files = (*headers.glob("*.patch"), headers / "clang-17/series")
    named = {path.relative_to(project.ROOT).as_posix() for path in files}
    named |= {f"docker/requirements/{name}.txt" for name in ("uv", "toolchain-12.6.1", "cuda-12.6.1")}
    assert named <= pins.keys()
    assert {"recipe", "source-date-epoch", "base-image"} <= pins.keys()


def test_complete_lock_is_r0_and_an_incomplete_one_says_what_floats() -> None:
    assert lock.collect(SPEC, TABLE, **FULL).level == "R0"
    found = lock.collect(SPEC, TABLE, base_image="debian")
    assert found.floating == ("base-digest", "apt-snapshot")
    assert found.level == "below R0"
    assert [line.split()[0] for line in lock.describe_floating(found.floating)] == ["base-digest", "apt-snapshot"]


def test_the_lock_of_the_default_set_in_the_repository_fits() -> None:
    locked = lock.read(project.ROOT / lock.DEFAULT_FILE)
    assert locked is not None
    assert lock.compare(locked, lock.collect_default()) == [], "run `make pins`"
    assert (locked.spec["tensorflow"], locked.spec["cuda"], locked.spec["cudnn"]) == ("2.19.0", "12.6.1", "9.5.0")
    assert locked.floating == ("base-digest", "apt-snapshot"), "only an engine and the user can name these"


@pytest.mark.parametrize(
    "text",
    [
        "{[",
        "schema: 2\nspec: {}\npins: {}",
        "schema: 1\nspec: {a: 1}\npins: {}",
        "schema: 1\nspec: {}\npins: {}\nsets: [a]",
        "[]",
        "\x00",
    ],
)
def test_what_is_no_lock_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / lock.FILE
    path.write_text(text)
    with pytest.raises(UsageError, match=r"toolkit\.lock\.yaml"):
        lock.read(path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"base_digest": "sha256:" + "1" * 64}, "base-digest"),
        ({"apt_snapshot": "20261122T000000Z"}, "apt-snapshot"),
        ({"base_image": "ubuntu"}, "base-image"),
    ],
)
def test_changed_pin_no_longer_fits(change: dict[str, str], named: str) -> None:
    locked = lock.collect(SPEC, TABLE, **FULL)
    with pytest.raises(CheckError, match="no longer fits") as caught:
        lock.require_fit(locked, lock.collect(SPEC, TABLE, **{**FULL, **change}))
    assert named in str(caught.value)
    assert caught.value.exit_code == 7


def test_commit_is_asked_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (
        ["init", "--quiet", "."],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "x"],
        ["tag", "v2.21.0"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(lock, "REPOSITORY", str(tmp_path))
    assert lock.ask_commit("2.21.0") == head.strip()
    assert lock.ask_commit("2.99.0") == ""
    monkeypatch.setattr(lock, "REPOSITORY", str(tmp_path / "none"))
    assert lock.ask_commit("2.21.0") == ""
