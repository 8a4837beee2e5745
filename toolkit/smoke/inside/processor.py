"""The processor's instruction sets, and the library that uses them."""

import os
import platform
from importlib import import_module
from pathlib import Path

from . import loading
from .check import TENSORFLOW, Ask, Check, Evidence, Fail, Skip

_NEEDED = {"x86_64": ("avx",)}
"""What the published wheels are compiled for (``--config=avx_linux`` in TensorFlow's .bazelrc)."""

_TOLD = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def instructions(_ask: Ask) -> Evidence:
    """The processor has the instruction set that published wheels are compiled for."""
    machine = platform.machine()
    flags = read_flags()
    evidence = {"machine": machine, "has": [flag for flag in _TOLD if flag in flags]}
    missing = [flag for flag in _NEEDED.get(machine, ()) if flag not in flags]
    if missing:
        raise Fail(
            f"this processor lacks {', '.join(missing)}: a published wheel dies of SIGILL on import",
            remedy="run on a newer processor, let the virtual machine pass the flags through, or build for this one",
            **evidence,
        )
    return evidence


def onednn(_ask: Ask) -> Evidence:
    """oneDNN, which makes convolutions fast on x86-64, is built in and switched on."""
    switch = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "")
    if switch == "0":
        raise Skip("TF_ENABLE_ONEDNN_OPTS=0 switches oneDNN off")
    if platform.machine() != "x86_64":
        raise Skip(f"oneDNN is on by default on x86_64 only; this is {platform.machine()}")
    loading.tensorflow()
    # What the log line "oneDNN custom operations are on" asks; there is no public name for it.
    port = import_module("tensorflow.python.util._pywrap_util_port")
    on = bool(port.IsMklEnabled())
    evidence = {"enabled": on, "TF_ENABLE_ONEDNN_OPTS": switch}
    if not on:
        raise Fail(
            "oneDNN is off: convolutions run several times slower",
            remedy="this build leaves it out; published x86_64 wheels have it",
            **evidence,
        )
    return evidence


def read_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Feature flags of the first processor: ``flags`` on x86, ``Features`` on ARM."""
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


CHECKS = (
    Check("cpu.instructions", "the processor has the instructions that the wheel uses", instructions),
    Check("cpu.onednn", "oneDNN is built in and on", onednn, needs=(TENSORFLOW,)),
)
