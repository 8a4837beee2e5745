"""A command may be killed at any moment: what it makes is whole or not there, and the next command completes it."""

import fcntl
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import interrupted
from tests.unit.exchange import conftest as exchange
from tests.unit.exchange import world as worlds
from tests.unit.exchange.oci import digest
from tests.unit.exchange.world import World
from tests.unit.graft import maker
from tests.unit.install import conftest as installing
from tests.unit.install.conftest import take_stock
from tests.unit.install.index import Index
from tests.unit.wheel.maker import make_wheel
from toolkit.__main__ import main
from toolkit.base.console import Console
from toolkit.cli import app  # noqa: F401 - the forked commands need not load it
from toolkit.graft import job
from toolkit.install import installation, undo
from toolkit.install.target import Target
from toolkit.records import transfer  # noqa: F401 - as above
from toolkit.wheel import package_index, wheel_folder

COUNT = 6
NUMBERS = (signal.SIGKILL, signal.SIGTERM)
made, servers, pushed, world = exchange.made, exchange.servers, exchange.pushed, exchange.world
index, target, small = installing.index, installing.target, installing.small
pytestmark = [pytest.mark.weekly, pytest.mark.timeout(3600)]

Run = Callable[[int, int], interrupted.Ended]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
    return {**usual, "DOCKER_HOST": "tcp://127.0.0.1:1", "NO_COLOR": "1", "TOOLKIT_STATE": str(tmp_path / "state")}


def kill(run: Run, reset: Callable[[], object], judge: Callable[[interrupted.Ended], object]) -> None:
    """Kill a command at moments that are chosen at random, judge what it left, and let the next one complete it."""
    reset()
    run(0, 0)  # what it caches is there from now on
    reset()
    unbroken = run(0, 0)
    assert unbroken.code == 0, unbroken.error
    generator = random.Random(0)  # noqa: S311 - nothing is secret
    for index in range(COUNT):
        reset()
        moment, number = generator.randint(1, unbroken.count), NUMBERS[index % len(NUMBERS)]
        ended = run(moment, number)
        where = f"{signal.Signals(number).name} at {moment} of {unbroken.count}: {ended}"
        assert "Traceback" not in ended.error, where
        assert ended.code in {0, 130, 143, -number}, where
        try:
            judge(ended)
            completed = run(0, 0)
            assert completed.code == 0, completed
            judge(completed)
        except Exception as error:
            raise AssertionError(where) from error


def command(folder: Path, variables: dict[str, str], *words: str) -> Run:
    return lambda moment, number: interrupted.fork(main, ["toolkit", *words], folder, variables, moment, number)


def list_hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []


def is_done(ended: interrupted.Ended) -> bool:
    return ended.code == 0 and ended.count > 0


@pytest.mark.parametrize("before", [True, False], ids=["again", "new"])
def test_an_index(tmp_path: Path, variables: dict[str, str], before: bool) -> None:
    old, new, site = (tmp_path / name for name in ("old", "new", "site"))
    for folder, version in ((old, "2.19.0"), (new, "2.20.0")):
        folder.mkdir()
        make_wheel(folder, version=version)
    (wheel,) = new.iterdir()

    def reset() -> None:
        shutil.rmtree(site, ignore_errors=True)
        if before:
            package_index.make(site, [*old.iterdir()])

    def judge(ended: interrupted.Ended) -> None:
        if site.exists():
            assert all(finding.state == "ok" for finding in package_index.verify(site))
        assert site.exists() or not before
        if is_done(ended):
            assert (site / "tensorflow" / wheel.name).exists()
            assert sorted(path.name for path in tmp_path.iterdir() if path.name != "state") == ["new", "old", "site"]

    kill(command(tmp_path, variables, "index", "site", f"new/{wheel.name}"), reset, judge)


def test_a_push(world: World, variables: dict[str, str]) -> None:
    def reset() -> None:
        world.registry.tags.clear()
        world.registry.blobs.clear()

    def judge(ended: interrupted.Ended) -> None:
        for content in world.registry.tags.values():
            assert digest(content)
        if world.registry.tags:
            assert {layer["digest"] for layer in world.registry.manifest["layers"]} <= world.registry.blobs.keys()
        if is_done(ended):
            shutil.rmtree(world.dist, ignore_errors=True)
            assert world.pull()
            assert worlds.read(world.dist / next(world.dist.iterdir()).name) == worlds.read(world.made)

    kill(command(world.root, variables, "push", str(world.made), world.registry.reference), reset, judge)


def test_a_pull(world: World, variables: dict[str, str]) -> None:
    def reset() -> None:
        shutil.rmtree(world.dist, ignore_errors=True)

    def judge(ended: interrupted.Ended) -> None:
        found = [path for path in world.dist.iterdir() if path.name[0] != "."] if world.dist.exists() else []
        assert all(worlds.read(path) == worlds.read(world.made) for path in found)
        if is_done(ended):
            assert len(found) == 1
            wheel_folder.check_sums(found[0])
            assert not list_hidden(world.dist)

    def run(moment: int, number: int) -> interrupted.Ended:
        return interrupted.fork(world.pull, ["pull"], world.root, variables, moment, number)

    kill(run, reset, judge)


def test_a_graft(tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    ptxas, source = maker.write_ptxas(tmp_path), maker.make_tensorflow(tmp_path)
    monkeypatch.setattr(job, "fetch_ptxas", lambda *_: ptxas)
    monkeypatch.setattr(job, "NEEDED_BYTES", 0)
    dist = tmp_path / "dist"

    def judge(ended: interrupted.Ended) -> None:
        found = [path for path in dist.iterdir() if path.name[0] != "."] if dist.exists() else []
        for path in found:
            wheel_folder.check_sums(path)
            assert (path / "manifest.json").exists()
        if is_done(ended):
            assert len(found) == 1
            assert not list_hidden(dist)

    run = command(tmp_path, variables, "graft", "--gpu", "RTX 5090", "--wheel", str(source), "--out", str(dist))
    kill(run, lambda: shutil.rmtree(dist, ignore_errors=True), judge)


def test_a_removal(tmp_path: Path, variables: dict[str, str]) -> None:
    state, kept = tmp_path / "state", tmp_path / "state" / "notes"

    def reset() -> None:
        for number in range(4):
            folder = state / f"environment-cpu-2.21.0-{number:012x}"
            (folder / "venv" / "lib").mkdir(parents=True, exist_ok=True)
            (folder / "venv" / "lib" / "module.py").write_text("x = 1\n")
            (folder.with_name(f"{folder.name}.lock")).touch()
        kept.mkdir(exist_ok=True)
        (kept / "mine").write_text("mine")

    def judge(ended: interrupted.Ended) -> None:
        assert (kept / "mine").read_text() == "mine"
        if is_done(ended):
            assert not [*state.glob("environment-*")]

    kill(command(tmp_path, variables, "clean", "--yes"), reset, judge)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("undone", [False, True], ids=["done", "undone"])
def test_an_installation(index: Index, target: Target, variables: dict[str, str], undone: bool, tmp_path: Path) -> None:
    """In its downloads, in the change, and while it is undone."""
    index.add("tensorflow", "2.21.0", "numpy>=2", scripts=["toco"])
    index.add("numpy", "2.4.6", scripts=["f2py"])
    index.add("numpy", "1.24.0", scripts=["f2py-old"], lock=False)
    index.fill(target, "numpy==1.24.0")
    folder, quiet = target.folder, Console(verbosity=-1)
    before = take_stock(folder)

    def install() -> None:
        installation.complete(target, quiet)
        installation.install(index.plan(target), quiet)

    def revert() -> None:
        if undo.find(target.python):
            installation.revert(target, quiet)

    install()
    after = take_stock(folder)

    def reset() -> None:
        revert()
        assert take_stock(folder) == before
        if undone:
            install()

    def judge(ended: interrupted.Ended) -> None:
        if is_done(ended):
            assert take_stock(folder) == (before if undone else after)

    def run(moment: int, number: int) -> interrupted.Ended:
        ended = interrupted.fork(revert if undone else install, ["install"], tmp_path, variables, moment, number)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)  # which a uv that outlives its parent holds
        os.close(handle)
        return ended

    kill(run, reset, judge)
