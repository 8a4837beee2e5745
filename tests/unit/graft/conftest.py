from pathlib import Path

import pytest

from tests.unit.graft import maker
from tests.unit.graft.maker import Graft
from toolkit.base import digest
from toolkit.base.console import Console
from toolkit.graft import graft_plan, job
from toolkit.graft.assembly import Assembler
from toolkit.versions.settings import Settings, resolve
from toolkit.versions.table import load_table
from toolkit.wheel import wheel_folder
from toolkit.wheel.wheel_folder import FinishedWheel


@pytest.fixture
def assembler(tmp_path: Path) -> Assembler:
    ptxas = maker.write_ptxas(tmp_path)
    return Assembler(ptxas=ptxas, digest=digest.digest_file(ptxas), cache=tmp_path / "cubins")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve({"state": str(tmp_path / "state")}, environment={})


@pytest.fixture
def graft(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Graft:
    ptxas = maker.write_ptxas(tmp_path)
    monkeypatch.setattr(job, "fetch_ptxas", lambda *_: ptxas)
    monkeypatch.setattr(job, "NEEDED_BYTES", 0)

    def make(*cards: str, source: Path | None = None, mode: graft_plan.Mode = "keep") -> FinishedWheel:
        given = source or maker.make_tensorflow(tmp_path)
        planned = graft_plan.plan_graft(
            load_table(), settings, graft_plan.GraftRequest(cards=cards, wheel=given, mode=mode)
        )
        console = Console(verbosity=-1)
        return wheel_folder.find(planned, tmp_path / "dist") or job.graft(
            planned, settings, console, dist=tmp_path / "dist"
        )

    return make
