"""Workers that are lost, late or different. Each takes some seconds to start, so these tests are slow."""

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.tiers import weekly
from tests.unit.train.worker_processes import DIGITS, ENDLESS, ROOT, describe, end, find_step, start, wait_for
from train.command_line import parse

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_drawing")]


@pytest.mark.parametrize("frozen", [weekly(0), 1])
def test_a_frozen_worker_is_named_in_bounded_time(frozen: int, tmp_path: Path) -> None:
    options = (*ENDLESS, "--out", str(tmp_path))
    started = [start(text, *options) for text in describe(2)]
    wait_for(parse(options).run_dir, 5)
    started[frozen].send_signal(signal.SIGSTOP)
    (other,) = end(started[1 - frozen])
    started[frozen].kill()
    assert other.code == 10, other.output
    assert f"error: worker {frozen} (" in other.output
    assert "it has not answered for 10 s: frozen, or cut off from the network" in other.output


@pytest.mark.parametrize("asked", [weekly(0), 1])
def test_a_request_to_stop_one_worker_stops_all_after_the_same_step(asked: int, tmp_path: Path) -> None:
    options = (*ENDLESS, "--out", str(tmp_path))
    started = [start(text, *options) for text in describe(2)]
    wait_for(parse(options).run_dir, 5)
    started[asked].terminate()
    chief, other = end(*started)
    step = find_step(parse(options).run_dir)
    assert (chief.code, other.code) == (130, 130), chief.output + other.output
    assert f"stopped as asked {'(SIGTERM at worker 1 (' if asked else 'after'}" in chief.output
    assert f"after step {step} of" in chief.output
    assert f"the chief ended the run after step {step}" in other.output


def test_a_loss_that_is_no_number_ends_all_workers(tmp_path: Path) -> None:
    options = (*ENDLESS, "--optimizer", "sgd", "--learning-rate", "99", "--schedule", "constant", "--weight-decay", "9")
    chief, other = end(*(start(text, *options, "--out", str(tmp_path)) for text in describe(2)))
    assert (chief.code, other.code) == (7, 7), chief.output + other.output
    assert "why: training diverged" in chief.output
    assert "the chief ended the run" in other.output


ERRING = """
import sys
from train.run import shards
from train.cli import main
apply = shards.ShardedStep.apply

def err(step, rows, rate):
    outcome = apply(step, rows, rate)
    if int(step.state.step) == 3:
        step.weights[0].assign(step.weights[0] * 1.0001)
    return outcome

shards.ShardedStep.apply = err
raise SystemExit(main(sys.argv[1:]))
"""


def test_a_worker_whose_weights_have_become_others_is_named_before_they_are_saved(tmp_path: Path) -> None:
    options, (first, second) = (*ENDLESS, "--out", str(tmp_path)), describe(2)
    chief, other = end(start(first, *options), start(second, *options, program=("-c", ERRING)))
    assert (chief.code, other.code) == (7, 7), chief.output + other.output
    for ended in (chief, other):
        assert "error: worker 1 (" in ended.output
        assert "has other weights than the chief after step 5" in ended.output
    assert not find_step(parse(options).run_dir)


def test_a_worker_that_never_comes_is_named(tmp_path: Path) -> None:
    described = describe(2)[0]
    (chief,) = end(start(described, *DIGITS, "--steps", "5", "--out", str(tmp_path), wait=2))
    assert chief.code == 10
    address = json.loads(described)["cluster"]["worker"][1]
    assert f"error: worker 1 ({address}) did not come within 2 s" in chief.output


def test_other_code_is_refused_by_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "train", tmp_path / "train")
    with (tmp_path / "train" / "loss.py").open("a") as file:
        file.write("# another line\n")
    common = (*DIGITS, "--steps", "5", "--out", str(tmp_path / "out"))
    first, second = describe(2)
    chief, other = end(start(first, *common), start(second, *common, cwd=tmp_path))
    assert (chief.code, other.code) == (7, 7), chief.output + other.output
    assert "worker 1 (127.0.0.1:" in chief.output
    assert "has other code: its digest is" in chief.output
