from pathlib import Path

import pytest

from tests.unit.graft import maker
from toolkit.base import digest
from toolkit.graft.assembly import Assembler


@pytest.fixture
def assembler(tmp_path: Path) -> Assembler:
    ptxas = maker.write_ptxas(tmp_path)
    return Assembler(ptxas=ptxas, digest=digest.digest_file(ptxas), cache=tmp_path / "cubins")
