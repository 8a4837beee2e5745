import pytest

from train.errors import PreflightError
from train.step import runtime


def test_an_emulated_gpu_is_refused() -> None:
    with pytest.raises(PreflightError, match=r"this GPU is emulated: Tesla T4 \(emulated\)"):
        runtime.refuse_emulation(["Tesla T4 (emulated)"])


def test_a_rehearsal_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime._Permission, "given", False)
    runtime.allow_emulation()
    runtime.refuse_emulation(["Tesla T4 (emulated)"])


def test_a_real_gpu_and_none_are_welcome() -> None:
    runtime.refuse_emulation([])
    runtime.refuse_emulation(["Tesla T4"])


def test_the_driver_tells_what_a_name_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_driver_is_emulated", lambda: True)
    assert runtime.is_emulated(["Tesla T4"])
    assert not runtime.is_emulated([])
