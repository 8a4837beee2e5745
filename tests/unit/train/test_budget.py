from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests import loaded
from train.cli import main
from train.command_line import parse
from train.data import Split
from train.errors import PreflightError
from train.step import budget

MEGABYTE = 1e6


def test_the_largest_fitting_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated step needs 500 MB and 10 MB an image, and a little more for large batches, as real steps do."""
    tried = []

    def measure(config: object, threads: int, size: int) -> int:
        tried.append(size)
        return int((500 + 10 * size + (100 if size > 100 else 0)) * MEGABYTE)

    monkeypatch.setattr(budget, "measure_peak", measure)
    config = parse(["cifar10", "--batch-size", "auto", "--memory-budget", "2"])
    assert config.batch_size == 0
    assert budget.choose_batch_size(config, 2, 50_000, 0) == 136
    assert tried == [16, 48, 144, 136]
    assert budget.choose_batch_size(config, 2, 100, 0) == 96
    # Memory of the data is not available to the step.
    assert budget.choose_batch_size(config, 2, 50_000, int(500 * MEGABYTE)) == 96
    split = Split(np.zeros((50_000, 1, 1, 1), np.uint8), np.zeros(50_000, np.int32))
    assert budget.fix_batch_size(config, 40, 2, split).batch_size == 40
    assert budget.fix_batch_size(config, 0, 2, split).batch_size == 136


def test_no_batch_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_peak", lambda config, threads, size: int(5000 * MEGABYTE))
    with pytest.raises(PreflightError, match="no batch fits"):
        budget.choose_batch_size(parse(["cifar10", "--batch-size", "auto", "--memory-budget", "2"]), 2, 50_000, 0)


@pytest.mark.slow
def test_a_run_with_a_batch_size_found_by_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(budget, "sys", SimpleNamespace(executable=loaded.start()))
    options = ["--depth", "10", "--steps", "2", "--threads", "2", "--progress", "plain", "--memory-budget", "2"]
    assert main(["digits", "--batch-size", "auto", *options, "--out", str(tmp_path)]) == 0
    assert "2 steps of 1432 images" in capsys.readouterr().err
