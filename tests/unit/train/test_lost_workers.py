"""Workers that are lost, late or different. Each takes some seconds to start, so these tests are slow."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tiers import weekly
from tests.unit.train.worker_processes import (
    DIGITS,
    ENDLESS,
    ROOT,
    describe,
    end,
    find_step,
    start,
    wait_for,
)
from train.cluster import tf_config
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
    assert f"stopped as asked (SIGTERM{' at worker 1 (' if asked else ') after'}" in chief.output
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


@pytest.mark.weekly
def test_a_late_worker_is_waited_for_and_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    options = (*DIGITS, "--steps", "5", "--out", str(tmp_path))
    first, second = describe(2)
    chief = start(first, *options)
    time.sleep(8)
    for ended in end(chief, start(second, *options)):
        assert ended.code == 0, ended.output
    again = end(*(start(text, *options) for text in describe(2)))
    assert [ended.code for ended in again] == [0, 0]
    assert "is complete; nothing to do" in again[0].output


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


class Veth(NamedTuple):
    """Two ends of a cable: one here, one in a network namespace."""

    name: str

    @property
    def inside(self) -> list[str]:
        return ["ip", "netns", "exec", self.name]

    def open(self) -> bool:
        near, far = f"{self.name}a", f"{self.name}b"
        commands = [
            f"ip netns add {self.name}",
            f"ip link add {near} type veth peer name {far} netns {self.name}",
            f"ip address add 10.213.77.1/30 dev {near}",
            f"ip link set {near} up",
            f"ip -n {self.name} address add 10.213.77.2/30 dev {far}",
            f"ip -n {self.name} link set {far} up",
            f"ip -n {self.name} link set lo up",
        ]
        return all(subprocess.run(each.split(), check=False, capture_output=True).returncode == 0 for each in commands)

    def cut(self) -> None:
        subprocess.run(["ip", "link", "set", f"{self.name}a", "down"], check=True)

    def close(self) -> None:
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


def test_a_cut_network_is_noticed_on_both_sides(tmp_path: Path) -> None:
    cable = Veth(f"cut{os.getpid() % 10000}")
    try:
        if not shutil.which("ip") or not cable.open():
            pytest.skip("this machine makes no network namespaces")
        addresses = ["10.213.77.1:23451", "10.213.77.2:23451"]
        near, far = (tf_config.describe(addresses, index)[tf_config.VARIABLE] for index in range(2))
        options = (*ENDLESS, "--out", str(tmp_path))
        started = start(near, *options), start(far, *options, before=cable.inside)
        wait_for(parse(options).run_dir, 5)
        cable.cut()
        chief, other = end(*started)
    finally:
        cable.close()
    assert (chief.code, other.code) == (10, 10), chief.output + other.output
    assert "error: worker 1 (10.213.77.2:23451) was lost" in chief.output
    assert "error: worker 0 (10.213.77.1:23451) was lost" in other.output
