"""The NVIDIA driver and its devices, against the CUDA that was asked for."""

import subprocess
from collections.abc import Iterator

from toolkit.findings import Finding
from toolkit.settings import Settings
from toolkit.versions import load_table, numbers

QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")


def check(settings: Settings) -> Iterator[Finding]:
    """Each GPU, and whether its driver runs the CUDA asked for."""
    try:
        answer = subprocess.run(QUERY, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        yield Finding(id="gpu", state="absent", evidence="no NVIDIA driver on this machine: everything runs on the CPU")
        return
    if answer.returncode:
        said = (answer.stderr or answer.stdout).strip()
        yield Finding(
            id="gpu",
            state="fail",
            advisory=True,
            evidence=f"nvidia-smi failed: {said[:200]}",
            remedy="the driver and its kernel module disagree, most often after an update: reboot",
        )
        return
    devices = [[word.strip() for word in line.split(",")] for line in answer.stdout.strip().splitlines()]
    for index, (name, capability, driver) in enumerate(device for device in devices if len(device) == 3):
        summary = f"{name}, compute capability {capability}, driver {driver}"
        yield Finding(id=f"gpu-{index}", state="ok", evidence=summary)
        if settings.cuda and index == 0:
            yield _compare(driver, settings.cuda)


def _compare(driver: str, cuda: str) -> Finding:
    row = load_table().cuda_rows.get(cuda)
    facts = {"driver": driver, "cuda": cuda}
    if row is None or not row.driver_min:
        return Finding(
            id="driver",
            state="fail",
            advisory=True,
            evidence=f"it is not known which driver CUDA {cuda} needs",
            facts=facts,
        )
    if numbers.parse(driver) >= numbers.parse(row.driver or row.driver_min):
        return Finding(id="driver", state="ok", evidence=f"the driver runs CUDA {cuda}", facts=facts)
    if numbers.parse(driver) >= numbers.parse(row.driver_min):
        summary = (
            f"driver {driver} is older than the {row.driver} of CUDA {cuda}; it runs it by minor-version compatibility"
        )
        remedy = "kernels must be built for the GPU's own capability: PTX of a newer CUDA may not load"
        return Finding(id="driver", state="ok", evidence=summary, remedy=remedy, facts=facts)
    return Finding(
        id="driver",
        state="fail",
        evidence=f"driver {driver} is too old for CUDA {cuda}, which needs {row.driver_min}",
        remedy=f"install a driver of the {row.driver.partition('.')[0]} branch, or ask for an older CUDA",
        facts=facts,
    )
