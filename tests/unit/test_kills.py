"""A command may be killed at any moment: what it makes is whole or not there, and the next command completes it."""

import shutil
from pathlib import Path

import pytest

from tests import interrupted
from tests.makers.kills import command, is_done, kill
from tests.unit.wheel.maker import make_wheel
from toolkit.wheel import package_index

pytestmark = [pytest.mark.weekly, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("before", [True, False], ids=["again", "new"])
def test_an_index(tmp_path: Path, before: bool) -> None:
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

    kill(command(tmp_path, "index", "site", f"new/{wheel.name}", state=tmp_path), reset, judge)


def test_a_removal(tmp_path: Path) -> None:
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

    kill(command(tmp_path, "clean", "--yes", state=tmp_path), reset, judge)
