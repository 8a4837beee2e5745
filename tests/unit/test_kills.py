"""A command may be killed at any moment: what it makes is whole or not there, and the next command completes it."""

import shutil
from pathlib import Path

import pytest

from tests import interrupted
from tests.makers.kills import command, is_done, kill, list_hidden
from tests.unit.graft import maker
from tests.unit.wheel.maker import make_wheel
from toolkit.graft import job
from toolkit.wheel import package_index, wheel_folder

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


def test_a_graft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    run = command(tmp_path, "graft", "--gpu", "RTX 5090", "--wheel", str(source), "--out", str(dist), state=tmp_path)
    kill(run, lambda: shutil.rmtree(dist, ignore_errors=True), judge)


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
