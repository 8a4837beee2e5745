import base64
import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.makers.gpu_rules import cubin
from tests.unit.smoke.conftest import Compiler, Site
from toolkit.checks import compiler
from toolkit.checks.check import Expectation, Fail

ASKED = Expectation(cuda="12.6.1", capability="7.5")
PTXAS = "nvidia/cuda_nvcc/bin/ptxas"
LIBDEVICE = "nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"
LIBNVVM = "nvidia/cuda_nvcc/nvvm/lib64/libnvvm.so"
BITCODE = b"BC\xc0\xde" + bytes(60)


@pytest.fixture
def alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(compiler, "roots", lambda: [site.root / "cuda_sdk_lib", site.root / "nvidia/cuda_nvcc"])
    monkeypatch.setenv("PATH", "")
    return site


def install_ptxas(
    site: Site,
    *,
    version: str = "12.6.68",
    flags: int = 0x4B054B,
    writes: bool = True,
    code: int = 0,
    unknown: str = "sm_99",
) -> Path:
    made = site.write("made.cubin", cubin(flags))
    script = f"""#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 12.6, V{version}"; exit 0; fi
case " {unknown} " in *" ${{1#-arch=}} "*)
    echo "ptxas fatal   : Value '${{1#-arch=}}' is not defined for option 'gpu-name'" >&2; exit 255;;
esac
{f'/bin/cp {made} "$4"' if writes else ":"}
echo "ptxas fatal : as told" >&2
exit {code}
"""
    file = site.write(PTXAS, script)
    file.chmod(0o755)
    return file


def test_no_ptxas_fails_and_says_where_it_was_looked_for(alone: Site) -> None:
    with pytest.raises(Fail, match="ptxas is not where TensorFlow looks") as caught:
        compiler.ptxas(ASKED)
    assert str(alone.root / PTXAS) in caught.value.evidence["searched"]
    assert "nvidia-cuda-nvcc-cu12" in caught.value.remedy


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"version": "13.0.88"}, "of CUDA 13.0.88; asked for 12.6.1"),
        ({"code": 255}, "code 255: ptxas fatal : as told"),
        ({"writes": False}, "ptxas made no cubin"),
        ({"flags": 0x5A055A}, "asked for sm_75, ptxas assembled for sm_90"),
        ({"unknown": "sm_75"}, "does not know sm_75"),
    ],
)
def test_a_ptxas_that_cannot_serve_fails(alone: Site, broken: dict[str, Any], why: str) -> None:
    install_ptxas(alone, **broken)
    with pytest.raises(Fail, match=why):
        compiler.ptxas(ASKED)


@pytest.mark.parametrize("unknown", ["sm_99", "sm_120"])
def test_the_gpu_that_is_here_decides(alone: Site, monkeypatch: pytest.MonkeyPatch, unknown: str) -> None:
    install_ptxas(alone, flags=0x780578, unknown=unknown)
    details = SimpleNamespace(get_device_details=lambda gpu: {"compute_capability": (12, 0)})
    alone.module.config = SimpleNamespace(experimental=details)
    monkeypatch.setattr(compiler, "find_gpus", lambda _: ["a card"])
    if unknown == "sm_120":
        with pytest.raises(Fail, match="does not know sm_120"):
            compiler.ptxas(Expectation())
    else:
        assert compiler.ptxas(Expectation())["assembled_for"] == "sm_120"


NVVM = """
#include <string.h>
typedef void *program;
#define LOG "error: libdevice is corrupt"
#define PTX "%(ptx)s"
int nvvmCreateProgram(program *p) { *p = (void *)1; return 0; }
int nvvmDestroyProgram(program *p) { return 0; }
int nvvmAddModuleToProgram(program p, const char *text, size_t size, const char *name) {
    return strcmp(name, "libdevice") == 0 ? %(add)d : 0;
}
int nvvmCompileProgram(program p, int n, const char **options) { return strcmp(options[0], "-arch=compute_75"); }
int nvvmGetProgramLogSize(program p, size_t *n) { *n = sizeof LOG; return 0; }
int nvvmGetProgramLog(program p, char *text) { strcpy(text, LOG); return 0; }
int nvvmGetCompiledResultSize(program p, size_t *n) { *n = sizeof PTX; return 0; }
int nvvmGetCompiledResult(program p, char *text) { strcpy(text, PTX); return 0; }
"""
GOOD_PTX = r".visible .entry probe(\n)\n"


def test_one_flipped_bit_in_the_wheels_libdevice_fails(alone: Site) -> None:
    promise = base64.urlsafe_b64encode(hashlib.sha256(BITCODE).digest()).rstrip(b"=").decode()
    alone.install("nvidia-cuda-nvcc-cu12", "12.6.68")
    alone.write("nvidia_cuda_nvcc_cu12-12.6.68.dist-info/RECORD", f"{LIBDEVICE},sha256={promise},{len(BITCODE)}\n")
    alone.write(LIBDEVICE, BITCODE)
    assert compiler.libdevice(ASKED)["record"] == "equal"
    alone.write(LIBDEVICE, BITCODE[:-1] + b"\x01")
    with pytest.raises(Fail, match="is not the file that nvidia-cuda-nvcc-cu12 installed"):
        compiler.libdevice(ASKED)


def test_what_cuda_13_has_in_other_places_is_found(
    cuda_13_site: Site, gcc: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = [root for root in compiler.roots() if root.is_relative_to(cuda_13_site.root)]
    monkeypatch.setattr(compiler, "roots", lambda: [Path("cuda_sdk_lib"), *within])
    monkeypatch.setenv("PATH", "")
    tool = install_ptxas(cuda_13_site, version="13.1.80").replace(cuda_13_site.write("nvidia/cu13/bin/ptxas", ""))
    asked = Expectation(cuda="13.1.0", capability="7.5")
    assert compiler.ptxas(asked)["file"] == str(tool)
    cuda_13_site.write("nvidia/cu13/nvvm/libdevice/libdevice.10.bc", BITCODE)
    assert "not tried" in compiler.libdevice(asked)["linked"]
    cuda_13_site.write("nvidia/cu13/lib/libnvvm.so.4", gcc(NVVM % {"ptx": GOOD_PTX, "add": 0}))
    assert "compute_75" in compiler.libdevice(asked)["linked"]
    cuda_13_site.install("nvidia-nvvm", "13.1.80")
    promise = f"nvidia/cu13/nvvm/libdevice/libdevice.10.bc,sha256={'A' * 43},{len(BITCODE)}\n"
    cuda_13_site.write("nvidia_nvvm-13.1.80.dist-info/RECORD", promise)
    with pytest.raises(Fail, match="is not the file that nvidia-nvvm installed") as caught:
        compiler.libdevice(asked)
    assert "install nvidia-cuda-nvcc and nvidia-nvvm of the CUDA" in caught.value.remedy


@pytest.mark.parametrize(
    ("libdevice", "answers", "why"),
    [
        (None, None, "libdevice.10.bc is not where TensorFlow looks"),
        (b"version https://git-lfs.github.com/spec/v1", None, "is not LLVM bitcode"),
        (BITCODE, {"ptx": GOOD_PTX, "add": 4}, "nvvmAddModuleToProgram returned 4: error: libdevice is corrupt"),
        (BITCODE, {"ptx": GOOD_PTX + r"call __nv_tanhf\n", "add": 0}, "does not define __nv_tanhf"),
        (BITCODE, {"ptx": "", "add": 0}, "does not define __nv_tanhf"),
        (BITCODE, {}, "cannot be linked"),
    ],
)
def test_a_libdevice_that_cannot_be_linked_fails(
    alone: Site, gcc: Compiler, libdevice: bytes | None, answers: dict[str, object] | None, why: str
) -> None:
    if libdevice:
        alone.write(LIBDEVICE, libdevice)
    if answers is not None:
        alone.write(LIBNVVM, gcc(NVVM % answers) if answers else b"not a library")
    with pytest.raises(Fail, match=why):
        compiler.libdevice(ASKED)
