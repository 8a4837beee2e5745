"""Whenever a signal comes, a program ends by it or finishes its work: it never ends with 0 and half of the work."""

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests import interrupted
from tests.interrupted import Ended
from tests.makers import kills
from tests.tiers import weekly
from tests.unit.graft import maker
from tests.unit.install.conftest import make_environment
from tests.unit.install.index import Index
from toolkit.engine import EnvironmentSpec
from toolkit.graft import job
from toolkit.install import installation, package_set, undo
from toolkit.smoke import runner
from toolkit.wheel import wheel_folder


def wrong(found: Counter[str]) -> set[str]:
    print(dict(found))
    return {*found} - interrupted.RIGHT


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., kills.Run]:
    return partial(kills.command, tmp_path, state=tmp_path)


COMMANDS = {
    "up": ("up", "digits", "--dry-run", "--engine", "host"),
    "train": ("train", "digits", "--dry-run", "--engine", "host", "--json"),
}


@pytest.mark.parametrize("count", [4, weekly(200)])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_interrupted_while_it_plans(start: Callable[..., kills.Run], name: str, count: int) -> None:
    run = start(*COMMANDS[name])
    run(0, 0)  # what it caches is there from now on
    unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error
    found = interrupted.sweep(count, unbroken.count, run, lambda ended: ended.out == unbroken.out)
    assert not wrong(found)
    assert found["130"] > count / 2


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [4, weekly(1000)])
def test_a_graft_that_is_interrupted_leaves_a_whole_wheel_or_none(
    tmp_path: Path, start: Callable[..., kills.Run], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    ptxas, source = maker.write_ptxas(tmp_path), maker.make_tensorflow(tmp_path)
    monkeypatch.setattr(job, "fetch_ptxas", lambda *_: ptxas)
    monkeypatch.setattr(job, "NEEDED_BYTES", 0)
    dist = tmp_path / "dist"
    run = start("graft", "--gpu", "RTX 5090", "--wheel", str(source), "--out", str(dist))
    unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error
    (made,) = dist.iterdir()
    names = {path.name for path in made.iterdir()}

    def again(moment: int, number: int) -> Ended:
        shutil.rmtree(dist, ignore_errors=True)
        ended = run(moment, number)
        left = [path for path in dist.glob("*") if not path.name.startswith(".")]
        assert all({path.name for path in each.iterdir()} == names for each in left)
        return ended

    found = interrupted.sweep(count, unbroken.count, again, lambda _: made.exists(), interrupted.DEADLY)
    assert not wrong(found)
    assert found.total() - found["whole"] > count / 2
    completed = run(0, 0)
    assert completed.code == 0, completed
    wheel_folder.check_sums(made)
    assert [*dist.iterdir()] == [made], "what a killed one left is removed"


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("count", [3, weekly(500)])
@pytest.mark.parametrize("place", ["new", "there", weekly("undone")])
def test_an_installation_that_is_interrupted_leaves_the_environment_as_before_or_whole(
    tmp_path: Path,
    start: Callable[..., kills.Run],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    count: int,
) -> None:
    """The next command completes it, and nothing hidden is left."""
    index = play_index(tmp_path, monkeypatch)
    folder, before = tmp_path / "mine", tmp_path / "before"
    install = run = start("install", "--into", str(folder), "--yes", "--card", "none")
    if place != "new":
        index.add("numpy", "1.24.0", lock=False)
        index.fill(make_environment(before), "numpy==1.24.0")
    whole, earlier = WHOLE, read_versions(before)
    if place == "undone":
        whole, earlier = earlier, whole
        run = start("install", "--into", str(folder), "--yes", "--undo")

    def reset() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, folder, symlinks=True)
        if place == "undone":
            assert install(0, 0).code == 0

    def again(moment: int, number: int) -> Ended:
        reset()
        return run(moment, number)

    def is_whole(_ended: Ended) -> bool:
        return read_versions(folder) == whole

    unbroken = again(0, 0)
    assert unbroken.code == 0, unbroken.error
    assert read_versions(folder) == whole
    usual = {path.name for path in tmp_path.iterdir()}

    def interrupt(moment: int, number: int) -> Ended:
        ended = again(moment, number)
        assert ended.code == -signal.SIGKILL or read_versions(folder) in (earlier, whole), (moment, ended)
        if moment % 4 == 0 or ended.code == -signal.SIGKILL:
            completed = run(0, 0)
            assert completed.code == 0, (moment, completed)
            assert read_versions(folder) == whole
        hidden = {path.name for path in folder.glob("lib/python*/.*")}
        assert hidden <= {undo.FOLDER}, (moment, ended)
        assert {path.name for path in tmp_path.iterdir()} <= usual
        return ended

    found = interrupted.sweep(count, unbroken.count, interrupt, is_whole, interrupted.DEADLY)
    assert not wrong(found)
    assert found.total() - found["whole"] > count / 2


WHOLE = {"numpy": "2.4.6", "tensorflow": "2.21.0", "toco": "program"}


def play_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """Let `toolkit install` find tiny packages in place of TensorFlow, and checks that pass."""
    monkeypatch.setenv("UV_CACHE_DIR", str(folder / "cache"))
    index = Index(folder / "index")
    index.add("tensorflow", "2.21.0", "numpy>=1.26", scripts=["toco"])
    index.add("numpy", "2.4.6")
    (folder / "no-pip.txt").touch()
    locked = folder / "locked.txt"
    locked.write_text(index.locked)
    spec = EnvironmentSpec(tensorflow="2.21.0", python="3.11")
    report = runner.Report(tensorflow="2.21.0", python="3.11", device={}, checks=(), verdict="pass")
    monkeypatch.setattr(EnvironmentSpec, "locked", locked)
    monkeypatch.setattr(
        package_set, "find", lambda *_, **__: package_set.PackageSet(spec=spec, roots=("tensorflow==2.21.0",))
    )
    monkeypatch.setattr(package_set, "Uv", lambda **_: index.uv)
    monkeypatch.setattr(runner, "run_in", lambda *_: report)
    monkeypatch.setattr(installation, "NEEDED_BYTES", 0)
    monkeypatch.setattr(installation, "SEED", str(folder / "no-pip.txt"))
    return index


def read_versions(folder: Path) -> dict[str, str]:
    """Return the packages of an environment by what their modules say, and its program if it names this folder."""
    found = {}
    for path in folder.glob("lib/python*/site-packages/*/__init__.py"):
        found[path.parent.name] = path.read_text().splitlines()[0].partition("'")[2].rstrip("'")
    program = folder / "bin/toco"
    if program.exists():
        found["toco"] = "program"
    return found
