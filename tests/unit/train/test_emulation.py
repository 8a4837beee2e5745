"""An emulated GPU is told by its name, and refused."""

import pytest

from train import emulation
from train.errors import PreflightError


def test_an_emulated_gpu_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"this GPU is emulated: Tesla T4 \(emulated\)"):
        emulation.refuse(["Tesla T4 (emulated)"])


def test_a_rehearsal_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation._Permission, "given", False)
    emulation.allow()
    emulation.refuse(["Tesla T4 (emulated)"])


def test_a_real_gpu_and_none_are_welcome() -> None:
    emulation.refuse([])
    emulation.refuse(["Tesla T4"])


def test_the_driver_tells_what_a_name_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "_driver_is_emulated", lambda: True)
    assert emulation.is_emulated(["Tesla T4"])
    assert not emulation.is_emulated([])
