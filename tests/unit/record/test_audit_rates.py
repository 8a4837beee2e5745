from pathlib import Path

import pytest

from benchmarks import audit


@pytest.mark.weekly
def test_forgeries_are_found_as_often_as_the_formula_says(tmp_path: Path) -> None:
    """A thousand forgeries of a run on digits, one kind of them made by training it with a flipped label."""
    forger = audit.Forger(tmp_path, 1, 0)
    assert forger.again == forger.honest
    assert [forgery.forged for forgery in forger.trained] == [1]
    rows = audit.tabulate(forger, 1000, 5)
    assert rows["all"].forgeries == 1000
    assert len(rows) == 5
    assert all(abs(row.deviations) < 4 for row in rows.values())
