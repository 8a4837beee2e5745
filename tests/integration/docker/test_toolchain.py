import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.tiers import weekly

pytestmark = pytest.mark.engine

LIMITS = "libstdcxx-limits-float128.patch"
FLOATN = "glibc-floatn-float128.patch"


def drop(name: str) -> Callable[[Path], None]:
    def change(headers: Path) -> None:
        series = headers / "clang-17/series"
        series.write_text(series.read_text().replace(f"../{name}", ""))

    return change


def invert(headers: Path) -> None:
    """Invert the patch's condition: this silences the error, but removes the type from all host code."""
    patch = headers / LIMITS
    old = "+#if defined(_GLIBCXX_USE_FLOAT128) && !defined(__CUDA_ARCH__)"
    assert old in patch.read_text()
    patch.write_text(patch.read_text().replace(old, "+#if ! defined(_GLIBCXX_USE_FLOAT128)"))


def drift(headers: Path) -> None:
    patch = headers / LIMITS
    patch.write_text(patch.read_text().replace(" #endif // __STDCPP_BFLOAT16_T__", " #endif // something else"))


def test_each_capability_is_compiled_and_read_back(tmp_path: Path) -> None:
    outcome = stages.build(
        "toolchain-proof", output=tmp_path, arguments={"COMPUTE_CAPABILITIES": "7.5,sm_80,compute_90"}
    )
    assert outcome.code == 0, outcome.text
    evidence = json.loads((tmp_path / "toolchain.json").read_text())
    assert [row["cubin"] for row in evidence["capabilities"]] == ["sm_75", "sm_80", "sm_90"]
    assert evidence["versions"]["clang"].startswith("17.")
    assert evidence["versions"]["libstdcxx"].startswith("14.")
    assert evidence["versions"]["cuda"] == "12.6.1"


@pytest.mark.weekly
def test_clang_22_compiles_for_newer_gpus_with_the_headers_as_they_are(tmp_path: Path) -> None:
    arguments = {"LLVM_VERSION": "22", "CUDA_VERSION": "12.8.1", "COMPUTE_CAPABILITIES": "sm_90a,sm_100,compute_120"}
    arguments |= {"TENSORFLOW_VERSION": "2.21.0"}
    outcome = stages.build("toolchain-proof", output=tmp_path, arguments=arguments)
    assert outcome.code == 0, outcome.text
    assert "patching file" not in outcome.text
    evidence = json.loads((tmp_path / "toolchain.json").read_text())
    assert [row["cubin"] for row in evidence["capabilities"]] == ["sm_90", "sm_100", "sm_120"]
    assert evidence["versions"]["clang"].startswith("22.")


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        pytest.param(drop(LIMITS), 7, "limits:2089:27: error: __float128 is not supported", id="without limits"),
        weekly(drop(FLOATN), 7, "bits/floatn.h:97:9: error: __float128 is not supported", id="without floatn"),
        pytest.param(invert, 7, "host code must keep numeric_limits<__float128>", id="inverted condition"),
        pytest.param(drift, 1, f"{LIMITS} does not fit exactly", id="drifted header"),
        pytest.param(
            lambda headers: (headers / LIMITS).unlink(), 2, f"names ../{LIMITS}, which is not there", id="lost"
        ),
    ],
)
def test_wrong_headers_stop_the_build(
    change: Callable[[Path], None], code: int, words: str, patches: Path, tmp_path: Path
) -> None:
    change(patches / "headers")
    outcome = stages.build("toolchain-proof", output=tmp_path / "out", contexts={"patches": patches})
    assert outcome.step_code == code, outcome.text
    assert words in outcome.text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tensorflow", "cuda", "llvm", "words"),
    [
        # The row of 12.8.1 has no patch: TensorFlow 2.19 has only 12.8.0 in its tables.
        ("2.19.0", "12.8.1", "18", "matches function template specialization 'ThreadLoadVolatilePointer'"),
        ("2.20.0", "12.9.1", "18", "matches function template specialization 'ThreadStoreVolatilePtr'"),
    ],
)
@pytest.mark.weekly
def test_a_cub_that_does_not_match_tensorflow_is_found(tensorflow: str, cuda: str, llvm: str, words: str) -> None:
    """See tensorflow#90562 and tensorflow#99273: the builds failed after hours."""
    arguments = {"TENSORFLOW_VERSION": tensorflow, "CUDA_VERSION": cuda, "LLVM_VERSION": llvm}
    outcome = stages.build("toolchain-proof", arguments=arguments)
    assert outcome.step_code == 7, outcome.text
    assert words in outcome.text


def test_a_patch_of_tensorflows_headers_makes_cub_match(tmp_path: Path) -> None:
    arguments = {"TENSORFLOW_VERSION": "2.19.0", "CUDA_VERSION": "12.8.0", "LLVM_VERSION": "18"}
    outcome = stages.build("toolchain-proof", output=tmp_path, arguments=arguments)
    assert outcome.code == 0, outcome.text
    # BuildKit says nothing of a step that it has from an earlier run of this test.
    applied = re.search(r"^#(\d+) \[headers-cuda .*apply-patches", outcome.text, re.MULTILINE)
    assert applied
    said = "patching file tensorflow/core/kernels/gpu_prim.h"
    assert said in outcome.text or f"#{applied[1]} CACHED" in outcome.text
