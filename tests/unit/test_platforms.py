"""What is offered for linux/arm64, what is refused, and in which words."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.command import Run
from tests.makers.sets import choose
from toolkit.base.console import Console
from toolkit.base.errors import PreflightError, UnsupportedError
from toolkit.doctor import cards
from toolkit.doctor.advice import Advice, advise
from toolkit.doctor.machine import Device, Machine
from toolkit.jobs import choice, pipeline
from toolkit.versions import lock, settings
from toolkit.versions.set import OPEN
from toolkit.versions.table import load_table
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan

TABLE = load_table()
ARM, AMD = "linux/arm64", "linux/amd64"


def refuse(run: Run, code: int, *arguments: str, **environment: str) -> str:
    done = run(*arguments, **environment)
    assert done.returncode == code, done.stderr
    return done.stderr


def ask(card: str) -> Advice:
    found = cards.find_card(card)
    return advise(TABLE, Device(name=card, capability=found.capability, platform=found.platform), Machine(), OPEN)


def test_the_platform_of_this_machine_is_the_default_and_a_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("aarch64", ARM), ("x86_64", AMD), ("riscv64", "linux/riscv64")):
        monkeypatch.setattr("os.uname", lambda name=name: type("Uname", (), {"machine": name}))
        assert settings.resolve({}, environment={}).platform == expected
        assert settings.resolve({"platform": ARM}, environment={}).platform == ARM
    with pytest.raises(UnsupportedError, match="the platform 'linux/riscv64' is not supported"):
        TABLE.platform("linux/riscv64")


@pytest.mark.parametrize("version", [row.version for row in TABLE.rows() if row.version < "2.21"])
def test_a_tensorflow_whose_flags_were_not_read_is_refused_with_the_nearest_that_is_built(version: str) -> None:
    with pytest.raises(UnsupportedError, match="is not built for linux/arm64") as caught:
        choose(TABLE, tensorflow=version, platform=ARM)
    assert "flags for this platform were read in a tree alone that calls itself 2.21.0" in caught.value.what
    assert "nearest that works: --platform linux/arm64 --tensorflow 2.21.0" in caught.value.remedy


@pytest.mark.parametrize(
    ("card", "capability", "cuda"),
    [
        ("DGX Spark", "12.1", "12.9.1"),
        ("GB200", "10.0", "12.8.1"),
        ("NVIDIA GH200 480GB", "9.0", "12.6.1"),
        ("Jetson AGX Orin", "8.7", "12.6.1"),
    ],
)
def test_the_advice_for_a_card_of_an_arm_machine_is_a_build_that_was_not_run(
    card: str, capability: str, cuda: str
) -> None:
    found = ask(card)
    assert (found.way, found.capability, found.platform, found.run, found.graft) == ("build", capability, ARM, "", "")
    assert "neither machine code nor PTX, so that no graft helps" in found.why
    assert f"--platform {ARM} --tensorflow " in found.build
    assert f"--cuda {cuda}" in found.build
    assert found.build.endswith(f"compute_{capability.replace('.', '')}")
    assert "no wheel was built" in found.untried
    assert found.toolchain.startswith(("proven (cross), 20", "untried"))
    assert bool(found.note) == ("Orin" in card)


def test_a_plan_for_arm_has_its_bazel_its_platform_and_its_own_digest() -> None:
    plans = {}
    for name in TABLE.platforms:
        spec = choose(TABLE, tensorflow="2.21.0", cuda="12.9.1", cudnn="9.8.0", platform=name)
        plans[name] = plan(lock.collect(spec, TABLE, base_image="python:3.11-slim-trixie"), BuildOptions())
    here, there = plans[AMD], plans[ARM]
    hashes = TABLE.bazel_rows["7.4.1"].sha256
    assert (there.arguments["BAZEL_MACHINE"], there.arguments["BAZEL_SHA256"]) == ("arm64", hashes["arm64"])
    assert (here.arguments["BAZEL_MACHINE"], here.arguments["BAZEL_SHA256"]) == ("x86_64", hashes["x86_64"])
    assert " ".join(there.command(Path("out"))).count("--platform linux/arm64") == 1
    assert "--platform" not in here.command(Path("out"))
    assert here.digest != there.digest


def test_a_wheel_is_built_and_jobs_run_on_machines_of_their_platform_only(run: Run) -> None:
    other = AMD if settings.find_own_platform() == ARM else ARM
    asked = ("--tensorflow", "2.21.0", "--cuda", "12.9.1", "--cudnn", "9.8.0")
    refused = refuse(run, 4, "build-wheel", *asked, "--platform", other)
    assert f"a wheel is built for {other} only on a machine of that platform" in refused
    shown = run("build-wheel", *asked, "--platform", ARM, "--compute-capability", "12.1", "--dry-run").stdout
    assert "BAZEL_MACHINE=arm64" in shown
    assert "COMPUTE_CAPABILITIES=compute_121" in shown


@pytest.mark.parametrize(("here", "asked"), [(AMD, ARM), (ARM, AMD)])
def test_images_and_jobs_are_made_on_a_machine_of_their_platform(
    monkeypatch: pytest.MonkeyPatch, here: str, asked: str
) -> None:
    given = replace(settings.resolve({"platform": asked}, environment={}), engine="docker")
    how = choice.Manner(console=Console(json=False, verbosity=-1))
    monkeypatch.setattr(settings, "find_own_platform", lambda: here)
    with pytest.raises(PreflightError, match=f"jobs are made for {asked} only on a machine of that platform"):
        pipeline.choose_environment(choice.Chosen(settings=given), how)
