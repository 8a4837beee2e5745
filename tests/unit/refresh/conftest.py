from pathlib import Path

import pytest

from tests.unit.refresh.sources import Index, Upstream, redirect
from toolkit import refresh
from toolkit.lock import REPOSITORY


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    given = Index()
    monkeypatch.setattr(refresh, "_ask", given)
    redirect(monkeypatch, {"https://": "file:///nowhere/"})
    return given


@pytest.fixture
def upstream(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    redirect(monkeypatch, {REPOSITORY: (tmp_path / "tf").as_uri(), "https://": "file:///nowhere/"})
    return Upstream(tmp_path / "tf")
