"""A full disk inside the engine, for real: an engine of its own, on a small disk of its own."""

import os
from pathlib import Path

import pytest

from tests.integration.place import Place
from tests.integration.small_engine import SmallEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount"),
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_full_disk_of_the_engine_is_named_and_with_space_the_next_run_succeeds(
    small_engine: SmallEngine, place: Place
) -> None:
    place.variables |= small_engine.variables
    with small_engine.filled(leave_mib=200):
        done = place.build()
    # What failed, why, what to do next, the exit code that the README lists, and nothing half in `dist`.
    assert done.returncode == 4, done.stderr
    assert "error: the engine's disk filled up during the build" in done.stderr
    assert "\n  why: " in done.stderr
    assert "docker builder prune" in done.stderr
    assert list((place.folder / "dist").iterdir()) == []
    done = place.build()
    assert done.returncode == 0, done.stderr
    assert len(place.results) == 1
