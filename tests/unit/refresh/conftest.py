from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server import serve
from tests.unit.refresh.sources import Index, Upstream, redirect
from toolkit import inquiry
from toolkit.lock import REPOSITORY


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    given = Index()
    monkeypatch.setattr(inquiry, "run", given)
    redirect(monkeypatch, {"https://": "file:///nowhere/"})
    with serve(GET=given.answer_release) as address:
        given.service = f"http://{address}"
        yield given


@pytest.fixture
def upstream(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    redirect(monkeypatch, {REPOSITORY: (tmp_path / "tf").as_uri(), "https://": "file:///nowhere/"})
    return Upstream(tmp_path / "tf")
