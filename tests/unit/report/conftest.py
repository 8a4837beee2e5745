import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records import maker, signed
from toolkit import report
from toolkit.report.chain import PageContext
from toolkit.report.page_model import Page


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run by the real writer."""
    folder = tmp_path_factory.mktemp("report")
    parent = maker.describe_environment(folder / "state")
    maker.train(folder / "runs", "--seed", "3", "--log-every", "5", parent=parent, draws=True)
    return folder


class Place:
    """A folder with a run, its environment, and what was found of it later."""

    def __init__(self, root: Path) -> None:
        self.root, self.state = root, root / "state"

    @property
    def run(self) -> Path:
        return next((self.root / "runs").glob("digits-*"))

    def change(self, **parts: Any) -> None:
        """Change parts of the run's manifest."""
        maker.change_json(self.run / "manifest.json", lambda value: value.update(parts))

    def describe(self, *targets: Path, **options: Any) -> Page:
        return self._compose(*targets, **options)[0]

    def write(self, *targets: Path, **options: Any) -> Path:
        path = self.root / "page.html"
        path.write_text(self._compose(*targets, **options)[1], encoding="utf-8")
        return path

    def _compose(self, *targets: Path, **options: Any) -> tuple[Page, str]:
        return report.compose([str(each) for each in targets or [self.run]], PageContext(state=self.state), **options)


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Place:
    root = Path(shutil.copytree(trained, tmp_path / "place"))
    made = maker.make_environment(root / "state")
    (made / signed.SMOKE).write_text(json.dumps(signed.REPORT))
    return Place(root)


@pytest.fixture(scope="session")
def signed_once(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> signed.World:
    return signed.make(tmp_path_factory.mktemp("signed"), next((trained / "runs").glob("digits-*")))


@pytest.fixture
def world(signed_once: signed.World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> signed.World:
    return signed.copy(signed_once, tmp_path / "world", monkeypatch)
