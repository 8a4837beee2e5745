import json
import re
from typing import Any

import pytest

from tests.command import Run
from tests.makers.sets import choose
from toolkit import versions
from toolkit.base.errors import UsageError
from toolkit.doctor import cards
from toolkit.doctor.advice import Advice, advise
from toolkit.doctor.machine import Device, Machine
from toolkit.graft import graft_plan
from toolkit.smoke.checks.gpu_rules import find_coverage
from toolkit.versions.settings import resolve

TABLE = versions.load_table()


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
        assert versions.find_locked(TABLE, versions.Set.of(flags))
        assert choose(TABLE, **flags, capabilities=[capability])


@pytest.mark.parametrize(
    ("capability", "way", "published", "run", "graft", "build"),
    [
        ("7.5", "published", "native", "--tensorflow 2.21.0", "", "--cudnn 9.10.2 --compute-capability compute_75"),
        ("6.1", "published", "native", "--cudnn 9.10.2", "", "compute_61"),
        ("9.0", "published", "native", "--tensorflow 2.21.0", "toolkit graft --compute-capability 9.0", "compute_90"),
        ("5.2", "build", "none", "", "", "--cuda 12.6.1 --cudnn 9.5.0 --compute-capability compute_52"),
        ("12.0", "graft", "ptx", "", "toolkit install --into my-env --card 12.0", "--cuda 12.8.1 --cudnn 9.10.2"),
        ("12.1", "graft", "ptx", "", "toolkit install --into my-env --card 12.1", "compute_12"),
        ("3.5", "none", "none", "", "", ""),
    ],
)
def test_what_runs_on_a_card(capability: str, way: str, published: str, run: str, graft: str, build: str) -> None:
    found = ask(capability)
    assert (found.way, found.published, found.graft) == (way, published, graft)
    assert (bool(found.run), bool(found.build)) == (bool(run), bool(build))
    assert run in found.run
    assert build in found.build


@pytest.mark.parametrize("capability", ["9.0", "10.0", "10.3", "12.0", "12.1"])
def test_the_graft_that_is_advised_can_be_planned(capability: str) -> None:
    settings = resolve({}, environment={})
    planned = graft_plan.plan_graft(TABLE, settings, graft_plan.GraftRequest(cards=[capability]))
    as_published = capability == "9.0"  # it runs without a graft
    way = f"graft --compute-capability {capability}" if as_published else f"install --into my-env --card {capability}"
    assert ask(capability).graft == f"toolkit {way}"
    assert planned.capabilities == (capability,)
    assert "minutes" in ask(capability).graft_cost


def test_a_graft_keeps_the_tensorflow_that_was_asked_for() -> None:
    assert ask("12.0", tensorflow="2.20.0").graft.endswith("--tensorflow 2.20.0")


def test_versions_that_were_asked_for_are_kept() -> None:
    found = ask("8.6", tensorflow="2.20.0", python="3.13")
    assert "--tensorflow 2.20.0 --python 3.13 --cuda 12.8.1 --cudnn 9.8.0" in found.run
    assert "--tensorflow 2.20.0 --python 3.13" in found.build


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
    ("capability", "driver", "said"),
    [
        ("12.0", "550.54", "driver 550.54 is too old for compute capability 12.0, which needs 570.26"),
        ("12.0", "570.86.10", "minor-version compatibility"),
        ("12.1", "570.124.06", "too old for compute capability 12.1"),
        ("8.9", "550.54", "minor-version compatibility"),
    ],
)
def test_no_driver_is_called_enough_for_a_card_that_is_newer(capability: str, driver: str, said: str) -> None:
    found = ask(capability, driver)
    assert said in found.driver_says
    assert found.remedy


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("RTX 5090", "12.0"),
        ("rtx5090", "12.0"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "12.0"),
        ("NVIDIA A100-SXM4-40GB", "8.0"),
        ("Tesla T4", "7.5"),
        ("NVIDIA RTX A2000 12GB", "8.6"),
        ("A2", "8.6"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA GeForce GTX TITAN X", "5.2"),
        ("NVIDIA TITAN X", "6.1"),
        ("TITAN V", "7.0"),
        ("GeForce GTX 1080 Ti", "6.1"),
        ("8.6", "8.6"),
        ("9.0a", "9.0a"),
    ],
)
def test_a_card_is_found_by_the_names_that_people_and_drivers_use(name: str, capability: str) -> None:
    assert cards.find_card(name).capability == capability


@pytest.mark.parametrize("name", ["RTX 9090", "", "RTX", "7.55"])
def test_an_unknown_card_is_not_guessed(name: str) -> None:
    with pytest.raises(UsageError, match="no card of this name"):
        cards.find_card(name)


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


def test_a_version_with_security_advisories_is_named(run: Run) -> None:
    done = run("advise", "T4", "--tensorflow", "2.20.0", "--json")
    value = json.loads(done.stdout)
    (line,) = [line for line in value["decision"]["warnings"] if "advisories" in line]
    assert "TensorFlow 2.20.0" in line
    assert "CVE-2026-2492 (fixed in 2.21.0)" in line
    assert value["gpus"][0]["advisories"] == [line]
    assert "advisories" not in run("advise", "A100").stdout


def test_the_answer_begins_with_the_verdict_and_names_one_tensorflow(run: Run) -> None:
    lines = run("advise", "RTX 5090", "--driver", "565.77").stdout.splitlines()
    assert "TensorFlow 2.21.0" in lines[0]
    assert "after a change of the driver" in lines[0]
    assert {*re.findall(r"--tensorflow (\S+)", "\n".join(lines))} == {"2.21.0"}


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["T4", "--cuda", "12.6.1"], "TensorFlow 2.19.0 with CUDA 12.6.1 and cuDNN 9.5.0"),
        (["T4", "--cudnn", "9.8.0"], "TensorFlow 2.20.0 with CUDA 12.8.1 and cuDNN 9.8.0"),
        (["T4", "--glibc", "2.17"], "TensorFlow 2.19.0 with CUDA 12.6.1"),
        (["--driver", "515.105.01"], "after a change of the driver"),
        (["5090"], "grafted"),
        (["sm_52"], "built"),
        (["--card", "none"], "on the processor"),
    ],
)
def test_each_question_alone_is_answered(run: Run, words: list[str], right: str) -> None:
    done = run("advise", *words, PATH="/nowhere")
    assert right in done.stdout.splitlines()[0], done.stderr
