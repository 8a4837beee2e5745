"""Asks NVIDIA's library for the GPUs of this machine, and writes one line of JSON.

It runs as a process of its own, because an answer may never come. It imports nothing of the toolkit.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    import pynvml

    answer: dict[str, Any] = {"driver": "", "devices": [], "code": 0, "said": ""}
    try:
        pynvml.nvmlInit()
        answer["driver"] = _ask(pynvml, pynvml.nvmlSystemGetDriverVersion)
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                answer["devices"].append(_describe(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:  # this one is lost; the others may be well
                answer |= {"code": error.value, "said": str(error)}
        if not answer["devices"] and not answer["code"]:
            answer |= {"code": pynvml.NVML_ERROR_NOT_FOUND, "said": "No devices were found"}
    except pynvml.NVMLError as error:
        answer |= {"code": error.value, "said": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


def _describe(pynvml: Any, handle: Any) -> dict[str, Any]:
    capability = _ask(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    bus = _ask(pynvml, pynvml.nvmlDeviceGetPciInfo, handle)
    mig = _ask(pynvml, pynvml.nvmlDeviceGetMigMode, handle)
    kind = _ask(pynvml, pynvml.nvmlDeviceGetVirtualizationMode, handle)
    return {
        "name": pynvml.nvmlDeviceGetName(handle),
        "capability": ".".join(str(part) for part in capability) if capability else "",
        "device": f"{bus.pciDeviceId >> 16:04x}" if bus else "",
        "mig": bool(mig and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE),
        "virtual": kind == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
    }


def _ask(pynvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer; an empty text if this driver or this GPU has none."""
    with contextlib.suppress(pynvml.NVMLError):
        return question(*arguments)
    return ""


if __name__ == "__main__":
    main()
