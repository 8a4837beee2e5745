from pathlib import Path

import pytest

from toolkit.base.errors import ToolkitError
from toolkit.versions import load_table, matrix, proofs

TABLE = load_table()
TEXT = """\
proofs:
- {tensorflow: 2.19.0, cuda: 12.6.1, clang: 17.0.6, date: '2026-11-22', proven: ['7.5', '8.0'],
   failed: {'9.0': an error}}
- {tensorflow: 2.21.0, cuda: 12.8.1, clang: 18.1.8, date: '2026-11-24', proven: ['8.7', '9.0'], failed: {},
   platform: linux/arm64, host: linux/amd64}
"""


@pytest.fixture(autouse=True)
def _written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proven.yaml").write_text(TEXT)
    monkeypatch.setattr(proofs.read, "__defaults__", (tmp_path / "proven.yaml",))


def list_states(platform: str, *place: str) -> dict[str, str]:
    cells = matrix.list_cells(TABLE, platform)
    return {cell.capability: cell.state for cell in cells if (cell.tensorflow, cell.cuda, cell.clang) == place}


def test_a_cell_is_proven_by_its_proof_alone() -> None:
    states = list_states("linux/amd64", "2.19.0", "12.6.1", "17")
    assert {name for name, state in states.items() if state == "proven"} == {"7.5", "8.0"}
    assert states["9.0"] == "failed"
    assert states["8.9"] == "untried"


def test_a_proof_by_a_cross_compiler_counts_for_its_platform_alone_and_says_so() -> None:
    states = list_states("linux/arm64", "2.21.0", "12.8.1", "18")
    assert {name for name, state in states.items() if state == "proven (cross)"} == {"8.7", "9.0"}
    assert "proven" not in list_states("linux/amd64", "2.21.0", "12.8.1", "18").values()
    grid = matrix.render_grid(list(matrix.list_cells(TABLE, "linux/arm64")))
    assert "TensorFlow 2.21.0 for linux/arm64, Python" in grid
    assert "c proven (cross) (2)" in grid


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "proven.yaml").write_text("proofs: [{tensorflow: 2.19.0}]")
    with pytest.raises(ToolkitError, match=r"proven\.yaml is damaged"):
        proofs.read(tmp_path / "proven.yaml")


def test_each_set_of_the_table_has_one_cell_and_each_refusal_a_reason() -> None:
    cells = list(matrix.list_cells(TABLE))
    places = [(cell.tensorflow, cell.cuda, cell.capability) for cell in cells]
    assert len(places) == len(set(places))
    assert {(row.version, cuda) for row in TABLE.rows() for cuda in row.cuda} == {place[:2] for place in places}
    assert all(bool(cell.why) == (cell.state in {"refused", "failed"}) for cell in cells)
    assert all(bool(cell.clang) == (cell.state != "refused") for cell in cells)
