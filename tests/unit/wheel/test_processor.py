from pathlib import Path

import pytest

from toolkit.base import naming
from toolkit.checks import device
from toolkit.checks.check import Expectation, Fail
from toolkit.engine import EnvironmentSpec
from toolkit.engine.client import BaseImage
from toolkit.engine.docker import plan_image
from toolkit.smoke import runner
from toolkit.wheel import cpu_targets

V3 = "avx avx2 bmi1 bmi2 f16c fma abm movbe sse4_2 popcnt cx16"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("has", "flags"),
    [
        (V3, ["-march=x86-64-v3"]),
        (f"{V3} avx_vnni gfni avx512_bf16", ["-march=x86-64-v3", "-mavxvnni", "-mgfni"]),
        (V4, ["-march=x86-64-v4"]),
        (f"{V4} avx512_bf16 amx_tile", ["-march=x86-64-v4", "-mavx512bf16", "-mamx-tile"]),
    ],
)
def test_native_is_written_out_as_what_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, has: str, flags: list[str]
) -> None:
    monkeypatch.setattr(cpu_targets, "_read_processor", lambda: frozenset(has.split()))
    found = cpu_targets.list_flags("native")
    assert found == [f"--copt={flag}" for flag in flags]
    assert {*cpu_targets.list_instructions(found)} <= {*has.split()}
    assert "avx2" in cpu_targets.list_instructions(found)


def test_without_avx_the_flag_of_upstream_is_taken_back_and_smoke_does_not_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = cpu_targets.list_flags("x86-64-v2")
    assert flags == ["--copt=-march=x86-64-v2", "--copt=-mno-avx", "--host_copt=-mno-avx"]
    needed = cpu_targets.list_instructions(flags)
    assert "sse4_2" in needed
    assert not any(name.startswith("avx") for name in needed)
    assert cpu_targets.list_instructions(["--copt=-march=x86-64-v2"]) == (), "AVX is still there"
    monkeypatch.setattr(device, "read_flags", lambda: frozenset(needed))
    monkeypatch.setattr(device.platform, "machine", lambda: "x86_64")
    assert device.instructions(Expectation(instructions=needed))["has"] == ["sse4_2"]
    with pytest.raises(Fail, match="lacks avx"):
        device.instructions(Expectation())


def test_a_wheel_for_other_processors_is_refused_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "read_flags", lambda: frozenset(V3.split()))
    assert device.instructions(Expectation(instructions=("avx2", "fma")))["machine"]
    with pytest.raises(Fail, match="lacks avx512f, avx512vl, which the wheel is compiled for"):
        device.instructions(Expectation(instructions=("avx2", "avx512f", "avx512vl")))


def test_what_a_wheel_needs_reaches_the_checks_and_the_label_of_an_image(tmp_path: Path) -> None:
    assert "avx2,fma" in runner.plan(Expectation(instructions=("avx2", "fma"))).argv
    assert "--expect-instructions" not in runner.plan(Expectation()).argv
    spec = EnvironmentSpec(tensorflow="2.19.0", python="3.11", instructions=("avx2", "fma"))
    (command,) = plan_image(spec, BaseImage(reference="base", identity="sha256:0"), state=tmp_path).commands
    assert f"{naming.INSTRUCTIONS_LABEL}=avx2 fma" in command
