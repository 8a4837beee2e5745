"""The decision which TensorFlow fits a machine."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.makers.newest import CPU, NEWEST
from toolkit import diagnosis
from toolkit.base.errors import UnsupportedError
from toolkit.doctor.decision import AUTO, Decision, decide
from toolkit.doctor.machine import Device, Fault, Machine
from toolkit.versions.set import NONE, Set

MACHINES = yaml.safe_load((Path(__file__).parents[1] / "fixtures/decisions.yaml").read_text())


def play(row: dict[str, Any]) -> Machine:
    """Return the machine of a row of decisions.yaml."""
    fault = row.get("fault")
    devices = tuple(
        Device(
            name=name,
            capability=capability,
            driver=driver,
            is_mig=row.get("is_mig", False),
            is_virtual=row.get("is_virtual", False),
        )
        for name, capability, driver, *count in row.get("cards", ())
        for _ in range(*(count or [1]))
    )
    names = ("platform", "system", "jetson_release", "is_container", "glibc", "python", "engine", "has_nvidia_runtime")
    return Machine(
        devices=devices,
        fault=Fault(id=fault, cause=f"a fault: {fault}", remedy="reboot", has_gpu=True) if fault else None,
        **{name: row[name] for name in names if name in row},
    )


def judge(found: Decision) -> list[str]:
    return [found.to_json()[name] for name in ("way", "tensorflow", "cuda", "cudnn", "capability", "driver")]


def expect(right: list[str], found: Decision) -> list[str]:
    """Return a right decision with the versions of the newest set, and those that may be any, in their places."""
    newest = NEWEST if right[2] else CPU
    of_set = ["", newest.tensorflow, newest.cuda, newest.cudnn, "", ""]
    answers = {"newest": of_set, "any": judge(found)}
    return [answers[value][at] if value in answers else value for at, value in enumerate(right)]


@pytest.mark.parametrize("row", MACHINES, ids=lambda row: row["id"])
def test_each_machine_gets_what_runs_on_it(row: dict[str, Any]) -> None:
    found = decide(play(row))
    assert judge(found) == expect(row["right"], found), found


def meet(*cards: tuple[str, str, str], **facts: Any) -> Machine:
    devices = tuple(Device(name=name, capability=capability, driver=driver) for name, capability, driver in cards)
    return Machine(devices=devices, **facts)


T4 = meet(("Tesla T4", "7.5", "560.35.03"))


@pytest.mark.parametrize(
    ("wishes", "right"),
    [
        ({}, ["published", "newest", "newest", "newest", "7.5", "minor"]),
        ({"cuda": "12.6.1", "cudnn": "9.5.0"}, ["published", "2.19.0", "12.6.1", "9.5.0", "7.5", "exact"]),
        ({"cudnn": "9.5.0"}, ["published", "2.19.0", "12.6.1", "9.5.0", "7.5", "exact"]),
        ({"cuda": "12.6.1"}, ["published", "2.19.0", "12.6.1", "9.5.0", "7.5", "exact"]),
        ({"tensorflow": "2.20.0"}, ["published", "2.20.0", "12.8.1", "9.8.0", "7.5", "minor"]),
        ({"card": "none"}, ["cpu", "newest", "", "", "", "n/a"]),
        ({"card": "RTX 5090"}, ["graft", "newest", "newest", "newest", "12.0", "unknown"]),
        ({"card": "7.5"}, ["published", "newest", "newest", "newest", "7.5", "minor"]),
    ],
)
def test_what_was_asked_for_is_honoured(wishes: dict[str, str], right: list[str]) -> None:
    found = decide(T4, Set.of(wishes), card=wishes.get("card", AUTO))
    assert judge(found) == expect(right, found)


def test_who_asks_for_a_cuda_is_told_what_a_build_would_link_against() -> None:
    found = decide(T4, Set(cuda="12.6.1", cudnn="9.5.0"))
    assert found.driver == "exact"
    assert any("build links against 12.6.1" in line for line in found.warnings)
    assert any("CVE" in line for line in found.warnings)


@pytest.mark.parametrize(
    ("capability", "wishes", "nearest"),
    [
        ("7.5", {"cuda": "12.6.2"}, "--tensorflow 2.19.0 --python 3.11 --cuda 12.6.1 --cudnn 9.5.0"),
        ("7.5", {"python": "3.4"}, f"--tensorflow {NEWEST.tensorflow} --python 3.11"),
        ("7.5", {"tensorflow": "2.20.0", "cuda": "12.6.1"}, "--tensorflow 2.20.0 --python 3.11 --cuda 12.8.1"),
        ("12.0", {"cuda": "12.6.1", "cudnn": "9.5.0"}, f"--tensorflow {NEWEST.tensorflow} --python 3.11 --cuda 12.8.1"),
        ("5.2", {"tensorflow": "2.19.0", "cuda": "13.0.0"}, "--cuda 12."),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_nearest(capability: str, wishes: dict[str, str], nearest: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        decide(meet(("it", capability, "580.65.06")), Set(**wishes))
    assert nearest in caught.value.remedy


@pytest.mark.parametrize(
    ("cards", "driver", "right", "visible", "words"),
    [
        # The driver knows one card only: what runs comes first.
        (["RTX 4090 8.9", "RTX 5090 12.0"], "550.54.14", ["published", "8.9", "minor"], "0", "which takes 570.26"),
        (["Tesla K80 3.7", "Tesla T4 7.5"], "580.65.06", ["published", "7.5", "exact"], "1", "no TensorFlow of the"),
        (["P40 6.1", "RTX 5090 12.0"], "595.71.05", ["graft", "12.0", "exact"], "1", "too new for P40"),
        (["GTX 970 5.2", "Tesla K80 3.7"], "580.65.06", ["build", "5.2", "exact"], "0", "no TensorFlow of the table"),
        (["RTX 3090 8.6", "M40 5.2"], "535.183.01", ["published", "8.6", "minor"], "0", "have no code for M40"),
        # The newer driver that the T4 needs does not know the other card.
        (["GT 710 3.5", "Tesla T4 7.5"], "470.82.01", ["published", "7.5", "too-old"], "1", "470 is the last branch"),
    ],
)
def test_cards_of_a_machine_get_one_set_and_the_others_are_left_out(
    cards: list[str], driver: str, right: list[str], visible: str, words: str
) -> None:
    found = decide(meet(*((*card.rsplit(" ", 1), driver) for card in cards)))
    assert [found.to_json()[name] for name in ("way", "capability", "driver")] == right
    assert found.visible == visible
    assert any(f"CUDA_VISIBLE_DEVICES={visible}" in line for line in found.warnings)
    assert words in " ".join(found.warnings)


@pytest.mark.parametrize(
    ("machine", "driver", "words"),
    [
        (meet(("GTX 1050", "6.1", "595.71.05")), "too-new", "570 or 580"),
        (meet(("Tesla P100", "6.0", "510.47.03")), "too-old", "570 or 580"),
        (meet(("RTX 5090", "12.0", "565.77")), "too-old", "570.124.06"),
        (meet(("RTX 2070", "7.5", "527.41"), system="wsl2"), "too-old", "in Windows"),
        (meet(("RTX 5090", "12.0", "570.86.10")), "minor", ""),
        (meet(("NVIDIA GB10", "12.1", "[N/A]"), platform="linux/arm64"), "unknown", ""),
    ],
)
def test_the_driver_is_judged_and_the_remedy_leads_to_one_that_runs(machine: Machine, driver: str, words: str) -> None:
    found = decide(machine)
    assert found.driver == driver
    assert words in found.remedy
    assert found.uses_gpu == (found.way.kind != "build" and driver in {"minor", "exact", "unknown"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GeForce GTX 750", "5.0 and 5.2"),
        ("Unheard of", "no card of this name is known"),
        ("Graphics Device", "too old"),
    ],
)
def test_a_card_whose_capability_nothing_tells_is_to_be_named(name: str, reason: str) -> None:
    warnings = " ".join(decide(meet((name, "", "570.124.06"))).warnings)
    assert reason in warnings
    assert "--card 7.5" in warnings


def test_a_processor_without_avx_is_told_which_build_runs_on_it() -> None:
    (line,) = [line for line in decide(Machine(lacks_avx=True), card=NONE).lines() if "AVX" in line]
    assert "`toolkit build-wheel --cuda none --cpu-target x86-64-v2`" in line
    with_card = decide(replace(T4, lacks_avx=True)).lines()
    assert any("`toolkit build-wheel --cpu-target x86-64-v2`" in line for line in with_card)
    assert not any("AVX" in line for line in decide(T4).lines())


def test_a_driver_that_is_too_old_names_the_failure_that_explains_it() -> None:
    found = decide(meet(("Tesla T4", "7.5", "450.80.02")))
    assert found.driver == "too-old"
    (named,) = re.findall(r"see `toolkit diagnose --id ([\w-]+)`$", found.remedy)
    assert named == diagnosis.load_row(named).id
