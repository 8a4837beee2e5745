"""`push` and `pull` may be killed at any moment: what they make is whole or not there."""

import shutil
from pathlib import Path

import pytest

from tests import interrupted
from tests.makers.kills import command, is_done, kill, list_hidden, make_variables
from tests.unit.exchange.oci import digest
from tests.unit.exchange.world import World, read
from toolkit.records import transfer  # noqa: F401 - the forked commands need not load it
from toolkit.wheel import wheel_folder

pytestmark = [pytest.mark.weekly, pytest.mark.timeout(3600)]


def test_a_push(world: World, tmp_path: Path) -> None:
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
            assert read(world.dist / next(world.dist.iterdir()).name) == read(world.made)

    kill(command(world.root, "push", str(world.made), world.registry.reference, state=tmp_path), reset, judge)


def test_a_pull(world: World, tmp_path: Path) -> None:
    def reset() -> None:
        shutil.rmtree(world.dist, ignore_errors=True)

    def judge(ended: interrupted.Ended) -> None:
        found = [path for path in world.dist.iterdir() if path.name[0] != "."] if world.dist.exists() else []
        assert all(read(path) == read(world.made) for path in found)
        if is_done(ended):
            assert len(found) == 1
            wheel_folder.check_sums(found[0])
            assert not list_hidden(world.dist)

    def run(moment: int, number: int) -> interrupted.Ended:
        return interrupted.fork(world.pull, ["pull"], world.root, make_variables(tmp_path), moment, number)

    kill(run, reset, judge)
