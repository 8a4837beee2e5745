"""NVIDIA's compiler library, by ctypes: enough of it to prove that a libdevice can be linked."""

import ctypes

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
    """Link a small kernel with a bitcode library and compile both to PTX (libNVVM API, section "Compilation").

    Raises:
        RuntimeError: libnvvm refused; the message is its log.
    """
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
