"""Checks what XLA needs to make GPU code: libdevice, NVIDIA's mathematical functions as bitcode, and ptxas.

Both are searched where TensorFlow searches: ``CandidateCudaRoots`` in ``xla/tsl/platform/default/cuda_root_path.cc``
and ``FindPtxAsExecutable`` in ``xla/stream_executor/cuda/subprocess_compilation.cc``.
"""

import ctypes
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from . import installation
from .check import TENSORFLOW, Check, Evidence, Expectation, Fail, find_gpus, find_remedy, load_tensorflow
from .gpu_rules import parse_capability, read_cubin_architecture, read_numbers
from .libraries import find_wheels

_PROBE = """\
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
declare float @__nv_tanhf(float)
define void @probe(float* %place) {
  %x = load float, float* %place
  %y = call float @__nv_tanhf(float %x)
  store float %y, float* %place
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{void (float*)* @probe, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
"""
"""A kernel with one call into libdevice, in NVVM IR 2.0 (typed pointers, as LLVM 7 had them)."""


def link(libnvvm: ctypes.CDLL, bitcode: bytes, capability: int) -> str:
    """Link a kernel with a bitcode library and compile to PTX (libNVVM API, "Compilation"). Raises RuntimeError."""
    program = ctypes.c_void_p()
    libnvvm.nvvmCreateProgram(ctypes.byref(program))
    try:
        for text, name in ((_PROBE.encode(), b"probe"), (bitcode, b"libdevice")):
            _call(libnvvm, program, "nvvmAddModuleToProgram", text, ctypes.c_size_t(len(text)), name)
        options = (ctypes.c_char_p * 1)(f"-arch=compute_{capability}".encode())
        _call(libnvvm, program, "nvvmCompileProgram", 1, options)
        return _read(libnvvm, program, "CompiledResult")
    finally:
        libnvvm.nvvmDestroyProgram(ctypes.byref(program))


def _call(libnvvm: ctypes.CDLL, program: ctypes.c_void_p, function: str, *arguments: object) -> None:
    code = libnvvm[function](program, *arguments)
    if code:
        log = " ".join(_read(libnvvm, program, "ProgramLog").split())
        raise RuntimeError(f"{function} returned {code}" + (f": {log[:300]}" if log else ""))


def _read(libnvvm: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t(0)
    libnvvm[f"nvvmGet{what}Size"](program, ctypes.byref(size))
    text = ctypes.create_string_buffer(max(size.value, 1))
    libnvvm[f"nvvmGet{what}"](program, text)
    return text.value.decode(errors="replace")


_BITCODE_MAGIC = b"BC\xc0\xde"
_TOOL_SECONDS = 30
_FIRST = (11, 8, 0)
_REFUSED = ((12, 3, 103),)
"""The first ptxas that XLA takes, and those of later versions that it does not take."""
_UNKNOWN = "is not defined for option 'gpu-name'"
"""What ptxas says of a GPU that it does not know."""

_PTX = """\
.version 6.0
.target sm_50
.address_size 64
.visible .entry probe(.param .u64 out)
{
    .reg .u64 %address;
    .reg .u32 %thread;
    ld.param.u64 %address, [out];
    mov.u32 %thread, %tid.x;
    st.global.u32 [%address], %thread;
    ret;
}
"""
"""PTX of an early target, which every ptxas can assemble."""


def libdevice(expectation: Expectation) -> Evidence:
    """Check that libdevice can be linked, by libnvvm of the same package: a kernel that calls its tanh becomes PTX.

    A file from a wheel must also have the hash that the wheel recorded.
    """
    installation.require_cuda(expectation)
    root, searched = _find("nvvm/libdevice/libdevice.10.bc")
    if root is None:
        raise Fail(
            "libdevice.10.bc is not where TensorFlow looks", remedy=find_remedy("libdevice-missing"), searched=searched
        )
    file = root / "nvvm/libdevice/libdevice.10.bc"
    bitcode = file.read_bytes()
    evidence: Evidence = {"file": str(file), "bytes": len(bitcode)}
    if not bitcode.startswith(_BITCODE_MAGIC):
        raise Fail(f"{file} is not LLVM bitcode", remedy=_advise(), starts_with=bitcode[:8].hex(), **evidence)
    package, evidence["record"] = installation.compare_with_record(file)
    if evidence["record"] == "different":
        raise Fail(f"{file} is not the file that {package} installed", remedy=_advise(), **evidence)
    # Since CUDA 13 its wheel has it among the other libraries.
    libnvvm = next(chain(root.glob("nvvm/lib64/libnvvm.so"), root.glob("lib*/libnvvm.so.*")), None)
    if libnvvm is None:
        return {**evidence, "linked": "not tried: libnvvm.so is not installed"}
    ptx, capability = _link_first(libnvvm, bitcode, _list_capabilities(expectation), evidence)
    if "__nv_tanhf" in ptx or ".entry probe" not in ptx:
        raise Fail(f"{file} does not define __nv_tanhf", remedy=_advise(), **evidence)
    return {**evidence, "linked": f"{len(ptx.splitlines())} lines of PTX for compute_{capability}"}


def _link_first(libnvvm: Path, bitcode: bytes, capabilities: Sequence[int], evidence: Evidence) -> tuple[str, int]:
    """Return PTX for the first capability for which the libnvvm can make it, and this capability."""
    first: Exception | None = None
    for capability in capabilities:
        try:
            return link(ctypes.CDLL(str(libnvvm)), bitcode, capability), capability
        except (OSError, RuntimeError) as error:
            first = first or error
    raise Fail(f"{evidence['file']} cannot be linked: {first}", remedy=_advise(), **evidence) from first


def ptxas(expectation: Expectation) -> Evidence:
    """Check that the ptxas that XLA would take assembles for the GPU that was asked for, or is here.

    Without one it assembles for the first capability of the build that it knows: CUDA 13 has dropped the earliest.
    """
    installation.require_cuda(expectation)
    tool, searched = find_ptxas()
    if tool is None:
        raise Fail("ptxas is not where TensorFlow looks", remedy=find_remedy("no-ptx-provider"), searched=searched)
    evidence: Evidence = {"file": str(tool), "version": ".".join(map(str, read_version(tool)))}
    asked = read_numbers(expectation.cuda)
    if asked and read_numbers(evidence["version"])[:2] != asked[:2]:
        text = f"TensorFlow would run {tool}, of CUDA {evidence['version']}; asked for {expectation.cuda}"
        raise Fail(text, remedy=_advise(), searched=searched, **evidence)
    capability, unknown = 0, []
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "probe.ptx"), Path(folder, "probe.cubin")
        source.write_text(_PTX)
        for capability in _list_capabilities(expectation):
            try:
                _run([str(tool), f"-arch=sm_{capability}", str(source), "-o", str(cubin)], **evidence)
                break
            except Fail as fail:
                if _UNKNOWN not in str(fail):
                    raise
                unknown.append(f"sm_{capability}")
        else:
            text = f"{tool}, which TensorFlow would run, does not know {', '.join(unknown)}"
            raise Fail(text, remedy=find_remedy("ptxas-too-old"), searched=searched, **evidence)
        try:
            found = read_cubin_architecture(cubin.read_bytes())
        except (OSError, ValueError) as error:
            raise Fail(f"ptxas made no cubin: {error}", remedy=_advise(), **evidence) from error
    if found != capability:
        text = f"asked for sm_{capability}, ptxas assembled for sm_{found}"
        raise Fail(text, remedy=_advise(), **evidence)
    return {**evidence, "assembled_for": f"sm_{found}", **({"unknown": unknown} if unknown else {})}


def find_ptxas() -> tuple[Path | None, list[str]]:
    """Return the ptxas that XLA would run, and where it was searched.

    As for XLA, a file counts only if it can be run, says its version, and is none of those that XLA refuses.
    """
    path = [Path(part) for part in os.environ.get("PATH", "").split(":") if part]
    # The folder chosen by XLA_FLAGS comes first, then PATH, then the usual places (PreferPtxasFromPath).
    chosen, *usual = roots()
    searched: list[str] = []
    for folder in dict.fromkeys((chosen / "bin", *path, *(root / "bin" for root in usual))):
        file = folder / "ptxas"
        reason = _refuse(file)
        searched.append(f"{file} ({reason})" if reason else str(file))
        if not reason and file.is_file():
            return file, searched
    return None, searched


def _refuse(file: Path) -> str:
    """Return why XLA does not take a file that is there; nothing if it takes it, or there is none."""
    if not file.is_file():
        return ""
    if not os.access(file, os.X_OK):
        return "not executable"
    try:
        version = read_version(file)
    except Fail as fail:
        return str(fail)
    return "" if version >= _FIRST and version not in _REFUSED else f"XLA refuses {'.'.join(map(str, version))}"


def read_version(tool: Path) -> tuple[int, ...]:
    """Return the version of a ptxas. Raises Fail: it does not run, or does not say it."""
    output = _run([str(tool), "--version"])
    match = re.search(r"\bV(\d+\.\d+\.\d+)\b", output)
    if match is None:
        raise Fail(f"{tool} does not say its version: {output[:80]}", remedy=_advise())
    return read_numbers(match[1])


def roots() -> list[Path]:
    chosen = re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", os.environ.get("XLA_FLAGS", ""))
    package = Path(str(load_tensorflow().__file__)).resolve().parent
    return [
        Path(chosen[-1] if chosen else "cuda_sdk_lib"),
        Path("/usr/local/cuda"),
        Path("/opt/cuda"),
        package.parent / "nvidia" / find_wheels(installation.read_build_info())["cuda-nvcc"].folder,
        package / "cuda",
        package.parents[3],
        Path(),
    ]


def _find(relative: str) -> tuple[Path | None, list[str]]:
    places = roots()
    return next((root for root in places if (root / relative).is_file()), None), [
        str(root / relative) for root in places
    ]


def _advise() -> str:
    """Return the remedy, which names the packages of ptxas and libdevice for the CUDA of the build."""
    wheels = find_wheels(installation.read_build_info())
    packages = " and ".join(wheels[name].package for name in ("cuda-nvcc", "nvvm") if name in wheels)
    return f"install {packages} of the CUDA asked for, or point XLA_FLAGS=--xla_gpu_cuda_data_dir at a toolkit"


def _list_capabilities(expectation: Expectation) -> list[int]:
    """Return the capability that was asked for, else that of the GPU here, else those of the build in their order."""
    gpus = [] if expectation.capability or expectation.device == "cpu" else find_gpus(load_tensorflow())
    if expectation.capability:
        named = [expectation.capability]
    elif gpus:
        details = load_tensorflow().config.experimental.get_device_details(gpus[0])
        named = ["{}.{}".format(*details.get("compute_capability", (7, 5)))]
    else:
        named = installation.read_build_info().get("cuda_compute_capabilities") or ["sm_75"]
    return sorted({found.major * 10 + found.minor for found in map(parse_capability, named) if found})


def _run(argv: list[str], **evidence: object) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fail(f"{argv[0]} does not run: {error}", remedy=_advise(), **evidence) from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        text = f"{argv[0]} failed with code {done.returncode}: {output[:300]}"
        raise Fail(text, remedy=_advise(), argv=argv, **evidence)
    return done.stdout.strip()


CHECKS = (
    Check("compiler.libdevice", "libdevice is found and can be linked", libdevice, 120, (TENSORFLOW,)),
    Check("compiler.ptxas", "ptxas is found and assembles for the capability", ptxas, 90, (TENSORFLOW,)),
)
