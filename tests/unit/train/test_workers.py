"""The weights do not depend on the workers. Each takes some seconds to start, so these tests are slow."""

import json
import subprocess
from pathlib import Path

import pytest

from tests import loaded
from tests.native import find_obstacle
from tests.tiers import weekly
from tests.unit.train import runs
from tests.unit.train.worker_processes import DIGITS, train, write_pictures
from train.command_line import parse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_drawing")]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.mark.parametrize(("job", "kernels"), [weekly("digits", "native"), weekly("pictures", "stock")])
def test_the_number_of_workers_does_not_change_the_weights(
    job: str, kernels: str, pictures: Path, tmp_path: Path
) -> None:
    if kernels == "native" and (obstacle := find_obstacle()):
        pytest.skip(obstacle)
    options: tuple[str, ...] = (*DIGITS, "--steps", "200")
    if job == "pictures":
        options = (str(pictures), "--depth", "22", "--image-size", "32", "--shards", "4", "--batch-size", "16")
        options = (*options, "--threads", "1", "--progress", "quiet", "--steps", "100")
    options = (*options, "--kernels", kernels)
    found = [train(count, *options, "--out", str(tmp_path / str(count))) for count in (1, 2, 4)]
    assert len({each["weights_sha256"] for each in found}) == 1
    assert [each["environment"]["workers"] for each in found] == [1, 2, 4]
    assert found[0]["result"]["test_loss"] == found[2]["result"]["test_loss"]
    assert len({each["config_sha256"] for each in found}) == 1
    assert found[0]["pictures"] == found[2]["pictures"]


def test_averages_and_early_ends_are_the_chiefs(tmp_path: Path) -> None:
    options: tuple[str, ...] = (
        *DIGITS,
        *("--epochs", "9", "--validation", "237", "--patience", "2", "--best", "--ema", "0.9"),
    )
    options = (*options, "--mixup", "0.2", "--dropout", "0.1", "--learning-rate", "3", "--checkpoint-every", "7")
    found = [train(count, *options, "--out", str(tmp_path / str(count))) for count in (1, 2)]
    assert found[0]["weights_sha256"] == found[1]["weights_sha256"]
    assert found[0]["result"]["best_epoch"] == found[1]["result"]["best_epoch"]


@pytest.mark.parametrize("kills", [3, weekly(20)])
def test_killed_workers_end_with_the_same_bits(tmp_path: Path, kills: int) -> None:
    """Kills of any worker, the chief too, resumed with one, two or four."""
    options = (*DIGITS, "--epochs", "30", "--checkpoint-every", "5")
    expected = train(1, *options, "--out", str(tmp_path / "unbroken"))
    words = [str(loaded.start()), "-m", "tests.unit.train.worker_processes", "0", str(kills), *options]
    done = subprocess.run([*words, "--out", str(tmp_path / "killed")], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed after step") == kills
    folder = parse([*options, "--out", str(tmp_path / "killed")]).run_dir
    assert json.loads((folder / "manifest.json").read_text())["weights_sha256"] == expected["weights_sha256"]
    whole = parse([*options, "--out", str(tmp_path / "unbroken")]).run_dir
    assert runs.read_lines(folder) == runs.read_lines(whole)
    assert not list(folder.rglob(".*.????????")), "no half-written file stays"
