"""The batch size that fits is found by measuring."""

from pathlib import Path

import pytest

from train import budget
from train.cli import main, parse
from train.errors import PreflightError

MEGABYTE = 1e6


def test_the_largest_fitting_batch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With memory that is 500 MB and 10 MB an image, and a little more for large batches, as in reality."""
    tried = []

    def measure(config: object, threads: int, size: int) -> int:
        tried.append(size)
        return int((500 + 10 * size + (100 if size > 100 else 0)) * MEGABYTE)

    monkeypatch.setattr(budget, "measure_peak", measure)
    config = parse(["cifar10", "--batch-size", "auto", "--memory-budget", "2"])
    assert config.batch_size == 0
    assert budget.choose_batch_size(config, 2, 50_000) == 128
    assert tried == [16, 48, 144, 128]
    assert budget.choose_batch_size(config, 2, 100) == 96
    assert budget.settle(config, 40, 2, 50_000).batch_size == 40


def test_no_batch_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_peak", lambda config, threads, size: int(5000 * MEGABYTE))
    with pytest.raises(PreflightError, match="no batch fits"):
        budget.choose_batch_size(parse(["cifar10", "--batch-size", "auto", "--memory-budget", "2"]), 2, 50_000)


@pytest.mark.slow
def test_a_run_with_a_batch_size_found_by_probes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--depth", "10", "--steps", "2", "--threads", "2", "--progress", "plain", "--memory-budget", "2"]
    assert main(["digits", "--batch-size", "auto", *options, "--out", str(tmp_path)]) == 0
    assert "2 steps of 1432 images" in capsys.readouterr().err
