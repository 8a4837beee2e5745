from dataclasses import replace

import pytest

from tests.makers.fitness import GOOD
from toolkit.base.errors import CheckError, UnsupportedError
from toolkit.versions.set import VERSIONS, Set
from toolkit.wheel import inspection

SPEC = {"tensorflow": "2.19.0", "python": "3.11", "cuda": "12.6.1", "cudnn": "9.5.0", "capabilities": "compute_75"}
ASKED = Set(tensorflow="2.19.0", python="3.11")


def test_the_right_wheel_passes() -> None:
    inspection.require_match(GOOD, SPEC)
    inspection.require_runnable(GOOD, ASKED, glibc="2.38")
    inspection.require_runnable(GOOD, replace(ASKED, cuda="12.6.2"))
    for built in ("", "9.3.0", "9.5.0", "9.5.1"):
        inspection.require_runnable(GOOD, replace(ASKED, cudnn="9.5.0"), built_cudnn=built)
    inspection.require_runnable(GOOD, ASKED, glibc="2.41", base_python="3.11")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tensorflow": "2.18.0"}, "not 2.18.0"),
        ({"python": "3.12"}, "for Python 3.11, not 3.12"),
        ({"cuda": "12.5.1"}, "CUDA 12.6.1, not 12.5.1"),
        ({"cudnn": "8.9.6"}, "cuDNN 9, not 8.9.6"),
        ({"capabilities": "sm_75,compute_80"}, "names compute_75, not sm_75, compute_80"),
        ({"capabilities": "sm_75,compute_80"}, "no machine code for sm_80, but sm_75, compute_75"),
    ],
)
def test_each_mismatch_fails_the_check(change: dict[str, str], reason: str) -> None:
    with pytest.raises(CheckError) as caught:
        inspection.require_match(GOOD, SPEC | change)
    assert reason in caught.value.why
    assert caught.value.exit_code == 7


@pytest.mark.parametrize("name", ["libcuda.so.1", "libnvrtc-builtins.so.12.6"])
def test_wheel_linked_to_the_driver_fails_the_check(name: str) -> None:
    with pytest.raises(CheckError, match="must load by itself"):
        inspection.require_match(replace(GOOD, needed=("libc.so.6", name)), SPEC)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"tensorflow": "2.18.0"}, "is TensorFlow 2.19.0, not 2.18.0"),
        ({"python": "3.12"}, "is not for Python 3.12"),
        ({"cuda": "12.5.1"}, "built for CUDA 12.6.1, and the run-time set is of 12.5.1"),
        ({"glibc": "2.36"}, "needs glibc 2.38, and the base image has 2.36"),
        ({"cudnn": "9.5.0", "built_cudnn": "9.6.0"}, "is built for cuDNN 9.6.0, and the run-time set has 9.5.0"),
        ({"machine": "aarch64"}, "is for linux_x86_64, not aarch64"),
    ],
)
def test_what_an_image_cannot_run_is_unsupported(wanted: dict[str, str], reason: str) -> None:
    others = {name: value for name, value in wanted.items() if name not in VERSIONS}
    with pytest.raises(UnsupportedError) as caught:
        inspection.require_runnable(GOOD, ASKED.merge(Set.of(wanted)), **{"glibc": "2.41", **others})
    assert reason in caught.value.what
    assert caught.value.exit_code == 3
