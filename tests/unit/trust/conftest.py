from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command import Run

STRANGER = 12345


@dataclass(frozen=True)
class Canary:
    """A file that each program of a stranger writes. It must stay unwritten."""

    path: Path

    @property
    def python(self) -> str:
        return f"import os; open({str(self.path)!r}, 'a').write('ran as ' + str(os.geteuid()))\n"

    @property
    def shell(self) -> str:
        return f"echo ran >>{self.path}"

    def has_sung(self) -> bool:
        return self.path.exists()


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    return Canary(tmp_path / "canary")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "here").mkdir()
    return Run(tmp_path / "here")
