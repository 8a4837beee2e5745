"""Chooses the processor instructions that a wheel is compiled for.

The published wheels need AVX, and so does every wheel here, by ``--config=avx_linux``, except one for x86-64-v2.
Further instructions are for the target alone: Bazel's own tools run on any machine that builds.
"""

import platform
from collections.abc import Iterable
from pathlib import Path

from toolkit.base.errors import UnsupportedError
from toolkit.versions.set import FIRST_PLATFORM
from toolkit.wheel.build_options import CpuTarget

_V2 = ("ssse3", "sse4_1", "sse4_2", "popcnt", "cx16")
_WITHOUT_AVX = "-mno-avx"
"""Flag that cancels the one of ``avx_linux``, which comes earlier. The wheel stage then looks for AVX in the wheel."""

_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "sse4_2", "popcnt", "cx16")
_LEVELS = {"x86-64-v4": (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"), "x86-64-v3": _V3}
"""The levels of the x86-64 psABI, highest first, by the names of /proc/cpuinfo."""

_EXTENSIONS = {
    "avx_vnni": "avxvnni",
    "gfni": "gfni",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2",
    "avx512_vnni": "avx512vnni",
    "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq",
    "avx512_bf16": "avx512bf16",
    "avx512_fp16": "avx512fp16",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
"""Instructions beyond the levels: the name in /proc/cpuinfo, and the compiler's name."""


def list_flags(target: CpuTarget, platform_name: str = FIRST_PLATFORM) -> list[str]:
    """Return Bazel's flags for a target.

    For ``native``, the flags name each instruction set of this machine's processor. So the plan's digest names them,
    and a remote executor compiles the same. Raises UnsupportedError if this machine has no x86-64 processor of level 3,
    or if the wheel is for another platform.
    """
    if target == "avx":
        return []
    if platform_name != FIRST_PLATFORM:
        raise UnsupportedError(
            f"--cpu-target {target} is for {FIRST_PLATFORM}, and the wheel is for {platform_name}",
            remedy="leave --cpu-target out: the instructions are then those of the published wheel",
        )
    if target == "x86-64-v2":
        return [f"--copt=-march={target}", *(f"--{option}={_WITHOUT_AVX}" for option in ("copt", "host_copt"))]
    if target != "native":
        return [f"--copt=-march={target}"]
    has = _read_processor()
    level = next((name for name, needed in _LEVELS.items() if has.issuperset(needed)), None)
    if level is None:
        raise UnsupportedError(
            f"--cpu-target native: this {platform.machine()} processor has no more than the default needs",
            why=f"x86-64-v3 needs {', '.join(sorted({*_V3} - has))} too",
            remedy="leave --cpu-target out" if "avx" in has else "--cpu-target x86-64-v2 needs no AVX",
        )
    # Without the base of a level, its extensions are of no use to the compiler.
    usable = [flag for name, flag in _EXTENSIONS.items() if name in has and (level == "x86-64-v4" or "512" not in name)]
    return [f"--copt=-march={level}", *(f"--copt=-m{flag}" for flag in usable)]


def list_instructions(bazel_arguments: Iterable[str]) -> tuple[str, ...]:
    """Return the instructions that a wheel needs, by the flags that it is built with. AVX alone needs none.

    The instructions have the names of /proc/cpuinfo. A wheel for x86-64-v2 needs those of that level, and no AVX.
    """
    named = {flag.removeprefix("--copt=") for flag in bazel_arguments}
    if _WITHOUT_AVX in named:
        return _V2
    needed = [name for level, names in _LEVELS.items() if f"-march={level}" in named for name in names]
    needed += [name for name, flag in _EXTENSIONS.items() if f"-m{flag}" in named]
    return tuple(dict.fromkeys(name for name in needed if name != "avx"))


def _read_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    lines = cpuinfo.read_text().splitlines()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))
