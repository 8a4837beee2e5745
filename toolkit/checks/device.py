"""Checks the processor and the GPU. Without a GPU its checks are skipped, unless one was asked for."""

import ctypes
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from . import installation, libraries
from .check import (
    TENSORFLOW,
    Check,
    Evidence,
    Expectation,
    Fail,
    Skip,
    find_gpus,
    find_remedy,
    load_numpy,
    load_tensorflow,
    refer,
)
from .gpu_rules import find_coverage, read_numbers

_NEEDED = {"x86_64": ("avx",)}
"""What the published wheels are compiled for (``--config=avx_linux`` in TensorFlow's .bazelrc)."""

_TOLD = ("sse4_2", "avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def instructions(expectation: Expectation) -> Evidence:
    machine = platform.machine()
    flags = read_flags()
    evidence = {"machine": machine, "has": [flag for flag in _TOLD if flag in flags]}
    needed = expectation.instructions or _NEEDED.get(machine, ())  # those beyond AVX are of no processor without it
    missing = [flag for flag in needed if flag not in flags]
    if missing:
        raise Fail(
            f"this processor lacks {', '.join(missing)}, which the wheel is compiled for: it would die of SIGILL",
            remedy=find_remedy("no-avx"),
            **evidence,
        )
    return evidence


def onednn(_ask: Expectation) -> Evidence:
    switch = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "")
    if switch == "0":
        raise Skip("TF_ENABLE_ONEDNN_OPTS=0 switches oneDNN off")
    if platform.machine() != "x86_64":
        raise Skip(f"oneDNN is on by default on x86_64 only; this is {platform.machine()}")
    load_tensorflow()
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
    for line in cpuinfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return frozenset(value.split())
    return frozenset()


PROCESSOR_CHECKS = (
    Check("cpu.instructions", "the processor has the instructions that the wheel uses", instructions),
    Check("cpu.onednn", "oneDNN is built in and on", onednn, needs=(TENSORFLOW,)),
)


_NO_GPU = "no GPU here, and none was asked for"


@dataclass(frozen=True)
class Cause:
    """Why there is no GPU, and what to do about it."""

    text: str
    remedy: str


_ANSWERS: Final[Mapping[int, Cause]] = {
    100: Cause("CUDA_ERROR_NO_DEVICE: no GPU was given to this process", find_remedy("no-device")),
    101: Cause("CUDA_ERROR_INVALID_DEVICE: there is no such GPU", find_remedy("devices-hidden")),
    802: Cause(
        "CUDA_ERROR_SYSTEM_NOT_READY: the switch between the GPUs is not set up",
        find_remedy("fabric-manager"),
    ),
    803: Cause(
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: libcuda and the kernel's module are of different versions",
        find_remedy("driver-mismatch"),
    ),
    804: Cause(
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: the image's libcuda is newer than the driver",
        find_remedy("driver-compat"),
    ),
    999: Cause("CUDA_ERROR_UNKNOWN: the driver is in a bad state", find_remedy("driver-state")),
}
"""What ``cuInit`` answers (CUDA Driver API, CUresult)."""


def driver(expectation: Expectation) -> Evidence:
    _respect(expectation)
    nodes = find_nodes()
    evidence: Evidence = {"device_nodes": nodes}
    causes: list[Cause] = []
    try:
        library = ctypes.CDLL(libraries.DRIVER)
    except OSError as error:
        text = f"{libraries.DRIVER}, the driver's library, does not load: {error}"
        place = "wsl2" if any(node.endswith("dxg") for node in nodes) else "container"
        causes.append(Cause(text, find_remedy("libcuda-missing", place)))
    else:
        state, wrong = ask_driver(library)
        evidence.update(state)
        causes += wrong
    if not nodes:
        causes.append(Cause("no /dev/nvidia* device", find_remedy("no-device")))
    if not causes:
        return evidence
    said = "; ".join(cause.text for cause in causes)
    if expectation.device == "auto" and not nodes:
        raise Skip(f"{_NO_GPU}: {said}")
    raise Fail(said, remedy=causes[0].remedy, **evidence)


def visible(expectation: Expectation) -> Evidence:
    _respect(expectation)
    tf = load_tensorflow()
    found = find_gpus(tf)
    if found:
        return {"gpus": [_describe(tf, gpu) for gpu in found]}
    if expectation.device == "auto" and not find_nodes():
        raise Skip(_NO_GPU)
    causes = _absence(expectation)
    said = [cause.text for cause in causes]
    raise Fail(f"TensorFlow sees no GPU: {'; '.join(said)}", remedy=causes[0].remedy, causes=said)


def capability(expectation: Expectation) -> Evidence:
    tf, gpu = _first_gpu(expectation)
    found = _describe(tf, gpu)
    built = [str(item) for item in installation.read_build_info().get("cuda_compute_capabilities") or []]
    evidence = {"device": found, "built": built, "asked": expectation.capability}
    if expectation.capability and found["capability"] != expectation.capability:
        text = f"{found['name']} has compute capability {found['capability']}, asked for {expectation.capability}"
        raise Fail(text, remedy="run on that GPU, or ask for this one", **evidence)
    how = find_coverage(built, found["capability"])
    if how is None:
        raise Fail(
            f"the build has no kernel for {found['name']} ({found['capability']})",
            remedy=f"build one: toolkit build-wheel --compute-capability {found['capability']}; {refer('old-card')}",
            **evidence,
        )
    return {**evidence, "covered_by": str(how)}


def operation(expectation: Expectation) -> Evidence:
    tf, _ = _first_gpu(expectation)
    np = load_numpy()
    # Small integers: every sum is exact.
    values = (np.arange(64 * 64) % 7 - 3).astype(np.float32).reshape(64, 64)
    with tf.device("/GPU:0"):
        result = tf.linalg.matmul(tf.constant(values), tf.constant(values))
    evidence = {"placed_on": result.device}
    if not result.device.endswith("GPU:0"):
        raise Fail(f"asked for GPU:0, computed on {result.device}", remedy="see device.visible", **evidence)
    if not np.array_equal(result.numpy(), values @ values):
        raise Fail("the GPU's product of small integers is wrong", remedy="do not train on this GPU", **evidence)
    return evidence


def memory(expectation: Expectation) -> Evidence:
    tf, gpu = _first_gpu(expectation)
    growth = bool(tf.config.experimental.get_memory_growth(gpu))
    with tf.device("/GPU:0"):
        kept = tf.ones([1 << 20])  # 4 MiB, held while memory is asked about
    used = tf.config.experimental.get_memory_info("GPU:0")
    evidence = {"growth": growth, "bytes": {name: int(value) for name, value in used.items()}}
    if not growth:
        raise Fail("memory growth could not be switched on", remedy="set TF_FORCE_GPU_ALLOW_GROWTH=true", **evidence)
    if used["current"] < kept.shape[0] * 4:
        text = "the allocator does not account for a tensor that lies on the GPU"
        raise Fail(text, remedy="see device.operation", **evidence)
    return evidence


def find_nodes(folder: Path = Path("/dev")) -> list[str]:
    """Return the device files of NVIDIA GPUs: the driver's own, and that of the Windows subsystem for Linux."""
    return sorted(str(node) for pattern in ("nvidia*", "dxg") for node in folder.glob(pattern))


def ask_driver(library: Any) -> tuple[Evidence, list[Cause]]:
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    wrong: list[Cause] = []
    code = library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    evidence: Evidence = {"cuInit": code, "cuda_of_driver": f"{version.value // 1000}.{version.value % 1000 // 10}"}
    if code:
        known = _ANSWERS.get(code, Cause("see CUresult in NVIDIA's CUDA Driver API", find_remedy("cuda-start")))
        wrong.append(Cause(f"cuInit returned error {code}, {known.text}", known.remedy))
    else:
        library.cuDeviceGetCount(ctypes.byref(count))
        evidence["devices"] = count.value
        if count.value == 0:
            text = "the driver lists no device (is CUDA_VISIBLE_DEVICES empty?)"
            wrong.append(Cause(text, find_remedy("devices-hidden")))
    built = read_numbers(installation.read_build_info().get("cuda_version"))
    # A driver serves every toolkit of its own major version (CUDA compatibility guide, minor version compatibility).
    if built and 0 < version.value < built[0] * 1000:
        text = f"the driver is for CUDA {evidence['cuda_of_driver']}, TensorFlow was built for {built[0]}"
        wrong.insert(0, Cause(text, find_remedy("driver-too-old")))
    return evidence, wrong


def _absence(expectation: Expectation) -> list[Cause]:
    if not installation.read_build_info().get("is_cuda_build"):
        return [Cause("this TensorFlow was built without CUDA", find_remedy("built-without-cuda"))]
    causes = []
    for probe in (driver, libraries.load, libraries.versions):
        try:
            probe(replace(expectation, device="gpu"))
        except Fail as fail:
            causes.append(Cause(str(fail), fail.remedy))
    if causes:
        return causes
    text = "the driver and the libraries answer; TensorFlow's own log (stderr) has the reason"
    return [Cause(text, "give that log to `toolkit diagnose`")]


def _first_gpu(expectation: Expectation) -> tuple[Any, Any]:
    _respect(expectation)
    tf = load_tensorflow()
    found = find_gpus(tf)
    if not found:
        if expectation.device == "gpu":
            raise Fail("TensorFlow sees no GPU", remedy="see device.visible for the causes")
        raise Skip(_NO_GPU)
    return tf, found[0]


def _describe(tf: Any, gpu: Any) -> dict[str, str]:
    details = tf.config.experimental.get_device_details(gpu)
    major, minor = details.get("compute_capability", (0, 0))
    return {"name": str(details.get("device_name", gpu.name)), "capability": f"{major}.{minor}"}


def _respect(expectation: Expectation) -> None:
    if expectation.device == "cpu":
        raise Skip("--device cpu leaves GPUs alone")
    if expectation.device == "auto" and not installation.read_build_info().get("is_cuda_build"):
        raise Skip("this TensorFlow was built without CUDA, and none was asked for")


CHECKS = (
    Check("device.driver", "the NVIDIA driver answers and sees a device", driver, needs=(TENSORFLOW,)),
    Check("device.visible", "TensorFlow sees the GPU", visible, 120, (TENSORFLOW,)),
    Check("device.capability", "the GPU is the one asked for, and has kernels", capability, needs=(TENSORFLOW,)),
    Check("device.operation", "an operation runs on the GPU and is right", operation, 300, (TENSORFLOW,)),
    Check("device.memory", "GPU memory is taken as needed", memory, needs=(TENSORFLOW,)),
)
