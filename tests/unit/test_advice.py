import json
import re
from typing import Any

import pytest

from tests.command import Run
from tests.makers.sets import choose
from toolkit.doctor import cards
from toolkit.doctor.advice import Advice, advise
from toolkit.doctor.machine import Device, Machine
from toolkit.smoke.checks.gpu_rules import find_coverage
from toolkit.versions.set import Set
from toolkit.versions.sets import find_locked
from toolkit.versions.settings import resolve
from toolkit.versions.table import load_table

TABLE = load_table()


def ask(capability: str, driver: str = "", **flags: str) -> Advice:
    device = Device(name="it", capability=capability, driver=driver)
    return advise(TABLE, device, Machine(), resolve(flags, environment={}).asked)


def read_flags(command: str) -> dict[str, Any]:
    flags = dict(re.findall(r"--(\S+) (\S+)", command))
    flags.pop("into", None)
    capability = flags.pop("compute-capability", None)
    return {**flags, **({"capabilities": [capability]} if capability else {})}


@pytest.mark.parametrize(
    "capability",
    sorted({chip.capability for chip in cards.load_chips().values()} - {"5.3", "6.2", "7.2", "8.7", "11.0", "12.1"}),
)
def test_the_advice_for_every_card_can_be_followed_and_runs_on_it(capability: str) -> None:
    found = ask(capability)
    if found.build:
        spec = choose(TABLE, **read_flags(found.build))
        covered = find_coverage(spec.capabilities, capability)
        assert covered is not None
        assert covered.is_native
    else:
        assert float(capability) < 5
        assert "no set of the table" in found.remedy
    if found.run:
        assert found.published == "native"
        flags = read_flags(found.run)
        assert find_locked(TABLE, Set.of(flags))
        assert choose(TABLE, **flags, capabilities=[capability])


@pytest.mark.parametrize(
    ("driver", "said", "remedy"),
    [
        ("570.124.06", "the driver runs CUDA 12.8.1", ""),
        ("550.54", "minor-version compatibility", "own capability"),
        ("525.60.13", "minor-version compatibility", "own capability"),
        ("525", "too old for CUDA 12.8.1", "install driver 570.124.06 or a newer one"),
        ("470.82", "too old for CUDA 12.8.1", "install driver 570.124.06 or a newer one"),
        ("", "", ""),
    ],
)
def test_the_driver_is_held_against_the_cuda_of_the_command(driver: str, said: str, remedy: str) -> None:
    found = ask("7.5", driver)
    assert said in found.driver_says
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("RTX 5090", "12.0"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("Tesla T4", "7.5"),
        ("NVIDIA RTX A2000 12GB", "8.6"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA GeForce GTX TITAN X", "5.2"),
        ("GeForce GTX 1080 Ti", "6.1"),
        ("9.0a", "9.0a"),
    ],
)
def test_a_card_is_found_by_the_names_that_people_and_drivers_use(name: str, capability: str) -> None:
    assert cards.find_card(name).capability == capability


def test_the_command_answers_without_a_gpu_and_for_one_that_is_named(run: Run) -> None:
    done = run("advise", "--gpu", "RTX 5090", "--driver", "570.124.06", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["gpus"]
    assert (found["capability"], found["published"], found["run"]) == ("12.0", "ptx", "")
    assert found["build"].endswith("--cuda 12.8.1 --cudnn 9.10.2 --compute-capability compute_120")
    assert run.started == []
    done = run("advise", PATH="/nowhere")
    assert (done.returncode, "no NVIDIA GPU" in done.stdout) == (0, True)
    for arguments, code, message in (
        (["--gpu", "RTX 9090"], 2, "did you mean RTX"),
        (["--gpu", "T4", "--driver", "new"], 2, "not a version of the driver"),
    ):
        done = run("advise", *arguments, PATH="/nowhere")
        assert (done.returncode, message in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["--cuda", "12.6.1"], "with CUDA 12.6.1 and cuDNN 9.5.0, as published"),
        (["--cudnn", "9.5.0"], "with CUDA 12.6.1 and cuDNN 9.5.0, as published"),
        (["--cuda", "none"], "on the processor"),
    ],
)
def test_one_library_may_be_asked_for_alone(run: Run, words: list[str], first: str) -> None:
    done = run("advise", "T4", *words)
    assert done.stdout.splitlines()[0].endswith(first), done.stdout + done.stderr
