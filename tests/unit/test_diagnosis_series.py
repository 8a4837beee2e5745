"""Losses of a training: what a series of them shows, and the many shapes of one that goes well."""

import io
import math
import random
from collections.abc import Iterable

import pytest

from toolkit import diagnosis
from toolkit.diagnosis import series

RANDOM = random.Random(1)  # noqa: S311 - the same numbers in each run
NAN = math.nan


def read(log: str) -> list[diagnosis.Cause]:
    return diagnosis.diagnose([("", io.BytesIO(log.encode()))]).causes


def write_keras(losses: Iterable[float], accuracy: float | None = None, *, bars: int = 0, digits: str = ".4f") -> str:
    lines = []
    for epoch, loss in enumerate(losses, 1):
        tail = "" if accuracy is None else f" - accuracy: {accuracy:.4f}"
        lines.append(f"Epoch {epoch}/99")
        bar = [
            f"{step}/{bars} [=>..] - ETA: 1s - loss: {loss * RANDOM.uniform(1, 1.2):{digits}}" for step in range(bars)
        ]
        lines.append("\r".join([*bar, f"9/9 - 1s 3ms/step - loss: {loss:{digits}}{tail} - val_loss: {loss:{digits}}"]))
    return "\n".join(lines)


def write(form: str, losses: Iterable[float]) -> str:
    return "\n".join(form.format(n=number, loss=loss) for number, loss in enumerate(losses))


FALLING = [2.3 * 0.95**epoch for epoch in range(80)]
RISING = [1.2 * 2**epoch for epoch in range(30)]
LOOP = "epoch {n} loss={loss:.4f}"
ESTIMATOR = "INFO:tensorflow:loss = {loss:.6g}, step = {n}00 (0.3 sec)"
SLIM = "INFO:tensorflow:global step {n}: loss = {loss:.4f} (0.408 sec/step)"
LIGHTNING = "Epoch {n}: 45%|##   | 12/99 [00:01<00:02, 50.00it/s, loss={loss:.3g}, v_num=0]"


@pytest.mark.parametrize(
    "log",
    [
        write_keras([2.3, 5000, 1e7, 3e12]),
        write_keras(RISING, 0.1, bars=20),
        write(LOOP, RISING),
        write(LOOP, [*FALLING, *(1e5 * 10**epoch for epoch in range(12))]),
        write("step {n}00, loss {loss:.3f}", RISING),
        write(ESTIMATOR, RISING),
        write(SLIM, [0.06, 0.16, 0.05, *(5e19 * 8**step for step in range(9))]),
        write(LIGHTNING, RISING),
        write("Epoch: {n:04d} cost= {loss:.9f}", RISING),
    ],
)
def test_a_loss_that_grows_by_orders_of_magnitude_is_found(log: str) -> None:
    (cause,) = read(log)
    assert cause.row.id == "loss-grows"
    assert cause.match.lines[0].text == log.splitlines()[-1]


def write_loop(losses: Iterable[float], seconds: int = 3) -> str:
    """Return the log of a loop that trains for one epoch each time."""
    return "\n".join(f"Epoch 1/1\n99/99 [======] - {seconds}s 9ms/step - loss: {loss:.4f}" for loss in losses)


def test_a_loop_of_single_epochs_is_one_training_as_far_as_its_loss_grows() -> None:
    assert [cause.row.id for cause in read(write_loop(RISING))] == ["loss-grows"]


@pytest.mark.parametrize("first", [0.4, -3.1])
def test_a_loss_of_classes_that_falls_below_zero_is_found(first: float) -> None:
    (cause,) = read(write_keras([first, *(-4.0 * 3**epoch for epoch in range(12))], 0.25))
    assert cause.row.id == "loss-falls"
    assert f"from {first:.3g} to -7.09e+05 in 13 epochs" in cause.cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (write_keras([0.6931] * 6, 0.5012), "guessing among 2 classes, in all 6 epochs"),
        (write_keras([2.3026] * 6, 0.1), "guessing among 10 classes"),
        (write_keras([6.9078] * 6, 0.001), "guessing among 1000 classes"),
        (write(LOOP, [2.41, 2.3026, *[2.3026] * 5]), "guessing among 10 classes"),
        (write_keras([7.9406, *[7.9712] * 8], 0.5), "stays at 7.9712 in all 9 epochs"),
        (write_keras([0.0] * 6, 0.33, digits=".4e"), "is zero in all 6 epochs"),
    ],
)
def test_a_loss_that_stays_the_same_is_found(log: str, cause: str) -> None:
    (found,) = read(log)
    assert found.row.id == "loss-still"
    assert cause in found.cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (write_keras([NAN] * 3), "from the first one on"),
        (write_keras([2.3, 1e4, 1e9, NAN, NAN]), "grew from 2.3 to 1e+09"),
        (write_keras([2.3, 1.2, 0.9, 0.8, NAN]), "was 0.8 and then became NaN at once"),
        (write("step {n} train_loss: {loss}", [2.3, NAN]), "became NaN"),
        ("epoch 1 loss: tensor(nan, device='cuda:0')", "from the first one on"),
        ("{'loss': 2.5, 'epoch': 0.1}\n{'loss': '0.0', 'grad_norm': 'nan', 'epoch': 0.2}", "became NaN"),
        ("epoch 7 loss: nan", "The log does not say which"),
        ("mixed_float16\n" + write_keras([2.3, 1.2, 0.9, 0.8, NAN]), "NaN in float16"),
    ],
)
def test_what_was_before_a_loss_that_is_no_number_says_where_to_look(log: str, cause: str) -> None:
    (found,) = read(log)
    assert found.row.id == "loss-nan"
    assert cause in found.cause


@pytest.mark.parametrize(
    "log",
    [
        write_keras(FALLING, 0.5, bars=10),
        write(LOOP, [loss * math.exp(RANDOM.gauss(0, 0.7)) for loss in FALLING]),
        write(LOOP, [0.01 + 2.3 * (1 - (epoch % 20) / 20) ** 3 for epoch in range(100)]),
        write(LOOP, [loss * (500 if epoch in {40, 41, 60} else 1) for epoch, loss in enumerate(FALLING)]),
        write_keras(1.8e9 * 0.5**epoch for epoch in range(40)),
        write_keras([183645.2, 12.3, 5.4, 3.2, 2.9]),
        write_keras([1e-6 * RANDOM.uniform(1, 1000) for _ in range(40)], digits=".4e"),
        write_keras([0.5, 0.1, *[0.0] * 40], 1.0),
        write_keras([0.0123] * 40, 0.995),
        write(LOOP, [0.01] * 40),
        write_keras([*FALLING[:10], *[0.0123] * 20], 0.7),
        write_keras([0.4321 + RANDOM.random() / 300 for _ in range(30)], 0.85),
        write_keras([0.6931] * 4, 0.5),
        write_keras([*[0.6931] * 5, *(0.69 * 0.97**epoch for epoch in range(9))]),
        write_keras([0.001] * 9) + "\n" + write_keras(FALLING),
        write(SLIM, [0.001] * 9) + "\n" + write(SLIM, [230 * loss for loss in FALLING]),
        write("Epoch [{n}/50] loss_D: 0.6931, loss_G: {loss:.4f}, loss: {loss:.4f}", RISING),
        write("{n} [D loss: {loss}, acc.: 50.00%] [G loss: {loss}]", RISING),
        write("epoch {n} critic_loss: -3.5 loss: {loss:.3f}", RISING),
        write("episode {n} step {n} reward 3 loss: {loss:.3f}", RISING),
        write(LOOP, [-loss for loss in RISING]),
        write_keras([-loss for loss in RISING]),
        write_keras([-loss for loss in reversed(RISING)], 0.5),
        write_keras([0.5, -0.1, -0.4, -0.9, -1.2], 0.5),
        write_keras([-500.0, *[-20.0] * 9], 0.5),
        write_loop(FALLING),
        write_loop([0.6931] * 30),
        write_loop(RISING, seconds=0),
        write("epoch {n} val_loss: {loss} best loss: inf Test loss: {loss}", RISING),
        "Epoch 1/9\n" + "\r".join(f"{n}/99 [=>..] - loss: {loss:.4f}" for n, loss in enumerate(RISING)),
        write("Finding best initial lr: step {n} loss={loss}", RISING),
        "\n".join(f"step {n} lr: {1e-7 * 2**n:.2e} loss: {loss}" for n, loss in enumerate(RISING)),
        "\n".join(f"loss: {loss}" for loss in RISING),
        write("Epoch 0000{n}: val_loss improved from inf to {loss}\nEpoch 1/9", RISING),
    ],
)
def test_a_training_that_goes_well_and_what_is_none_have_nothing(log: str) -> None:
    assert read(log) == []


def test_of_a_long_log_some_lines_and_numbers_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_WHOLE", 100_000)
    grown = [2.3 * 1.01**epoch for epoch in range(3000)]
    assert [cause.row.id for cause in read(write_keras(grown, bars=20))] == ["loss-grows"]
    assert read(write_keras(reversed(grown), bars=20)) == []
    thinned = series._Numbers()
    for number in range(10_000):
        thinned.add(number)
    assert series._MOST // 2 <= len(thinned.kept) <= series._MOST
    assert (thinned.kept[0], thinned.count) == (0, 10_000)
