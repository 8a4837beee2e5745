"""Processor flags, from the texts that kernels give."""

from pathlib import Path

import pytest

from toolkit.smoke.inside import device
from toolkit.smoke.inside.check import Ask, Fail


def test_a_processor_without_avx_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(device, "read_flags", lambda: frozenset({"sse4_2"}))
    with pytest.raises(Fail, match="lacks avx"):
        device.instructions(Ask())


def test_an_arm_processor_needs_no_avx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    monkeypatch.setattr(device, "read_flags", lambda: frozenset({"asimd"}))
    assert device.instructions(Ask())["has"] == ["asimd"]


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx avx2\n", "avx2"),
        ("Features\t: fp asimd\n", "asimd"),
        ("vendor : x\n", None),
    ],
)
def test_flags_are_read(tmp_path: Path, text: str, flag: str | None) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    flags = device.read_flags(file)
    assert (flag in flags) if flag else not flags
