import math
import random
import re
from pathlib import Path

import pytest

from tests.unit.train import runs
from train.command_line import parse
from train.run.display import Forecast, Task
from train.run.job import run

UNITS = {"s": 1, "min": 60, "h": 3600, "days": 86400}


def make_task(*words: str, trained: int, evaluated: int) -> Task:
    config = parse([*words, "--progress", "quiet"])
    batch = config.batch_size
    epoch = trained // batch
    steps = config.steps or config.epochs * epoch
    return Task(config, steps, 0, epoch, batch, trained, evaluated)


def read(text: str) -> list[float]:
    return [float(number) * UNITS[unit] for number, unit in re.findall(r"about ([\d.]+) (\w+)", text)]


@pytest.mark.parametrize("step", [0.02, 0.6])
@pytest.mark.parametrize("epoch_steps", [7, 780])
def test_what_is_said_is_right_within_a_fifth(step: float, epoch_steps: int) -> None:
    """A played run: steps that differ, an evaluation that makes its graph once, and curves after each epoch."""
    chance, epochs, said, after = random.Random(1), 300, "", 0.0  # noqa: S311
    task = make_task("cifar10", trained=64 * epoch_steps, evaluated=13 * epoch_steps)
    forecast, clock = Forecast(long=0), 0.0
    for done in range(1, epochs * epoch_steps + 1):
        if done > 1:
            spent = step * chance.uniform(0.8, 1.3)
            forecast.add_step(spent)
            clock += spent
        if done % epoch_steps == 0:
            end = 13 * epoch_steps / 64 * step * 0.35 + 0.2 + 6 * (done == epoch_steps)
            forecast.add_end(end)
            clock += end
        if forecast.is_ready and not said:
            said, after = forecast.describe(task), clock
    assert after < max(30, 5 * step, 3 * epoch_steps * step)
    assert read(said)[0] == pytest.approx(clock, rel=0.2)


def test_a_run_says_once_how_long_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = parse([*runs.ARGUMENTS, "--epochs", "8", "--out", str(tmp_path)])
    with runs.without_drawing():
        run(config, forecast=Forecast(long=0, measured=0.1))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "about" in line]
    assert re.match(r"8 epochs: about [\d.]+ s at [\d.]+ images/s", line)
    assert math.isfinite(read(line)[0])
