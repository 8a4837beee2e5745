import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.tiers import slow, weekly
from tests.unit.train.runs import ARGUMENTS, BATCH, STEPS, find_folder, read_digest, run
from train.errors import ToolkitError, explaining_failures
from train.record import checkpoint
from train.record.metrics import read_epochs
from train.run import conclusion, job, loop, shards
from train.step import evaluation, state
from train.system import signals

pytestmark = pytest.mark.usefixtures("no_drawing")


def once(original: Callable[..., Any], call: int) -> Callable[..., Any]:
    calls = [0]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **options)

    return interrupted


@pytest.mark.parametrize("options", [pytest.param((), id="function"), slow(("--loop", "fit"), id="fit")])
def test_while_the_first_step_is_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        # The first call is for the evaluation.
        patch.setattr(evaluation, "normalize_images", once(evaluation.normalize_images, 2))
        assert run(tmp_path, *options) == 130
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "first step" not in said
    assert not (find_folder(tmp_path, *options) / "checkpoints").exists()
    assert run(tmp_path, *options) == 0


def test_while_the_data_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "load", once(job.load, 1))
    assert run(tmp_path) == 130
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("epoch", "options"), [(1, ()), slow(3, ()), slow(2, ("--loop", "fit"))])
def test_while_a_model_is_evaluated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    unbroken: str,
    epoch: int,
    options: tuple[str, ...],
) -> None:
    """Evaluating a large model on a processor takes too long to wait for, so the resumed run evaluates.

    Options that decide nothing may change when it is resumed.
    """
    with monkeypatch.context() as patch:
        patch.setattr(loop, "evaluate", once(loop.evaluate, epoch))
        assert run(tmp_path, *options) == 130
    folder = find_folder(tmp_path, *options)
    loaded, _ = checkpoint.load(folder / "checkpoints")
    assert loaded
    assert (loaded.position.step, loaded.position.seen) == (epoch * STEPS, STEPS * BATCH)
    assert len(read_epochs(folder / "metrics.csv")) == epoch - 1
    capsys.readouterr()
    assert run(tmp_path, *options, "--log-every", "1", "--keep", "1", "--profile", "12:13") == 0
    assert f"resumed after step {epoch * STEPS} of {3 * STEPS}" in capsys.readouterr().err
    assert read_digest(tmp_path, *options) == unbroken
    assert [record.epoch for record in read_epochs(folder / "metrics.csv")] == [1, 2, 3]
    assert [record.train_accuracy for record in read_epochs(folder / "metrics.csv")][epoch - 1] > 0.1


def test_without_any_good_checkpoint_it_says_that_it_begins_anew(
    tmp_path: Path, finished: Path, unbroken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    folder = find_folder(tmp_path)
    (folder / "manifest.json").unlink()
    for path in (folder / "checkpoints").glob("*.npz"):
        path.write_bytes(b"")
    capsys.readouterr()
    assert run(tmp_path) == 0
    assert "no good checkpoint is left: the run begins anew" in capsys.readouterr().err
    assert read_digest(tmp_path) == unbroken
    assert [record.epoch for record in read_epochs(folder / "metrics.csv")] == [1, 2, 3]


STOCK = ("--kernels", "stock")


def test_what_a_relu_hides_from_the_loss_is_found_when_the_state_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorFlow's ReLU turns NaN into 0: the loss stays finite, and only the weights show the error."""
    normalize = evaluation.normalize_images
    monkeypatch.setattr(evaluation, "normalize_images", lambda *arguments: normalize(*arguments) * np.nan)
    assert run(tmp_path, *STOCK) == 7
    said = capsys.readouterr().err
    assert f"holds no numbers any more after step {STEPS}" in said
    assert not list(find_folder(tmp_path, *STOCK).rglob("step-*"))


def test_weights_that_are_no_numbers_are_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gradient can overflow in the last step of an epoch although the loss is still finite."""
    original, saves = state.State.read, [0]

    def spoil(self: state.State) -> Any:
        saves[0] += 1
        values = original(self)
        if saves[0] == 2:
            values["stem/kernel"] = values["stem/kernel"] * np.inf
        return values

    monkeypatch.setattr(state.State, "read", spoil)
    assert run(tmp_path) == 7
    said = capsys.readouterr().err
    assert f"stem/kernel holds no numbers any more after step {2 * STEPS}" in said
    assert f"step-{STEPS:08d}.npz" in said
    assert [path.name for path in (find_folder(tmp_path) / "checkpoints").glob("*.npz")] == [f"step-{STEPS:08d}.npz"]


def test_an_error_of_tensorflow_is_one_message_that_names_the_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @tf.function
    def divide(by: tf.Tensor) -> tf.Tensor:
        return tf.math.floordiv(tf.constant(1), by, name="share")

    monkeypatch.setattr(state.State, "read", lambda _: divide(tf.constant(0)))
    assert run(tmp_path) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert re.search(
        r"error: TensorFlow failed in the operation \S*share\S*\n +why: InvalidArgumentError: .*zero", said
    )
    report = next(tmp_path.rglob("failure.txt"))
    assert str(report) in said
    assert report.read_text().startswith("Traceback")


def exhausted(why: str) -> Exception:
    return tf.errors.ResourceExhaustedError(None, None, why)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 4, "the job ran out of memory"),
        (exhausted("failed to allocate memory [Op:AddV2]"), 4, "the job ran out of memory"),
        (exhausted("Received message larger than max"), 1, "Received message larger than max"),
        (tf.errors.UnimplementedError(None, None, "A deterministic GPU implementation of X is"), 1, "would fail again"),
        (tf.errors.UnavailableError(None, None, "Socket closed"), 1, "goes on from the last checkpoint"),
    ],
    ids=str,
)
def test_an_error_says_what_it_is_and_whether_it_comes_again(
    error: Exception, code: int, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ToolkitError) as caught, explaining_failures(tmp_path / "failure"):
        raise error
    assert (caught.value.exit_code, said in str(caught.value)) == (code, True), caught.value
    assert ("would fail again" in str(caught.value)) is (said == "would fail again")
    assert (tmp_path / "failure").exists() is (code == 1)


def mount(folder: Path, *options: str) -> bool:
    argv = ["mount", *options, "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
@pytest.mark.parametrize("kilobytes", [slow(32), slow(128), weekly(256), 384, weekly(512)])
def test_a_run_on_a_full_disk(
    tmp_path: Path, kilobytes: int, unbroken: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the disk fills up, there is one clear error; with more space, the same command resumes."""
    if not mount(tmp_path, "-o", f"size={kilobytes}k"):
        pytest.skip("mounting is not allowed here")
    try:
        assert run(tmp_path) == 4
        said = capsys.readouterr().err
        assert "cannot write" in said
        assert "why: No space left on device" in said
        assert "Traceback" not in said
        subprocess.run(["mount", "-o", "remount,size=9m", str(tmp_path)], check=True)
        assert run(tmp_path) == 0
        assert read_digest(tmp_path) == unbroken
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(("before", "reason"), [(signal.SIG_DFL, "SIGHUP"), (signal.SIG_IGN, "")])
def test_a_terminal_that_is_closed_stops_a_run_but_not_under_nohup(before: Any, reason: str) -> None:
    original = signal.signal(signal.SIGHUP, before)
    try:
        with signals.listen() as requests:
            requests.begin_saving()
            os.kill(os.getpid(), signal.SIGHUP)
            assert requests() == reason
        assert signal.getsignal(signal.SIGHUP) is before
    finally:
        signal.signal(signal.SIGHUP, original)


@pytest.mark.slow
def test_a_reader_that_goes_away_does_not_end_a_run(tmp_path: Path) -> None:
    """In ``python -m train digits 2>&1 | head -1`` both streams break after the first line."""
    read, write = os.pipe()
    os.close(read)
    argv = [sys.executable, "-m", "train", *ARGUMENTS, "--steps", "2", "--out", str(tmp_path)]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(argv, stdout=write, stderr=write, env=variables, check=False)
    os.close(write)
    assert done.returncode == 0
    assert (find_folder(tmp_path, "--steps", "2") / "manifest.json").exists()


@pytest.mark.slow
def test_other_workers_stay_until_the_conclusion_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to stop while the test split is evaluated at the end is an end of all workers, as any other."""
    options, codes = ("--steps", "1", "--validation", "237", "--best", "--shards", "2"), []
    told: list[bool] = []
    folder = find_folder(tmp_path, *options)

    def end(_: Any, code: int) -> None:
        codes.append(code)
        told.append((folder / "manifest.json").exists())

    monkeypatch.setattr(loop.Loop, "end", end)
    compared: list[int] = []
    monkeypatch.setattr(shards.ShardedStep, "compare", lambda _, __, number: compared.append(number))
    with monkeypatch.context() as patch:
        patch.setattr(conclusion, "conclude", once(conclusion.conclude, 1))
        assert run(tmp_path, *options) == 130
    assert run(tmp_path, *options) == 0
    assert (codes, told) == ([130, 0], [False, True])
    assert compared == [1], "the best weights are the chief's alone"
