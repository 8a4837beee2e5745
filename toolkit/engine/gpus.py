"""Says whether this machine has GPUs, and which a job may use: those that CUDA_VISIBLE_DEVICES grants the caller."""

import os
import shutil
from itertools import takewhile
from pathlib import Path

from toolkit.engine import Job

_VISIBLE, _ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
_NONE = "-1"


def hides_gpus() -> bool:
    """Return whether CUDA_VISIBLE_DEVICES hides all GPUs from the programs of this user."""
    granted = os.environ.get(_VISIBLE)
    return granted is not None and granted.strip().partition(",")[0] in {"", _NONE}


def find_driver_program(root: Path = Path("/")) -> str | None:
    """Return the path of nvidia-smi, or None. WSL and Colab keep it in folders that are not in every PATH."""
    places = (os.environ.get("PATH", os.defpath), str(root / "usr/lib/wsl/lib"), str(root / "opt/bin"))
    return shutil.which("nvidia-smi", path=os.pathsep.join(places))


def has_gpu(devices: Path = Path("/dev")) -> bool:
    """Return whether there is a device file of a GPU, and CUDA_VISIBLE_DEVICES does not hide all GPUs.

    In WSL the file is there for GPUs of all makers, and NVIDIA's driver has a library for CUDA beside it.
    """
    if hides_gpus():
        return False
    wsl = (devices / "dxg").exists() and Path("/usr/lib/wsl/lib/libcuda.so.1").exists()
    return wsl or (devices / "nvmap").exists() or any(True for _ in devices.glob("nvidia[0-9]*"))


def grant(numbers: str) -> None:
    """Let what this program starts see only some GPUs of this machine, given by the numbers that nvidia-smi counts.

    By itself, CUDA counts the fastest GPU first. What the user has granted stays.
    """
    if numbers and _VISIBLE not in os.environ:
        os.environ.update({_VISIBLE: numbers, _ORDER: "PCI_BUS_ID"})


def hide() -> None:
    """Let nothing that this program starts see a GPU."""
    os.environ[_VISIBLE] = _NONE


def choose(job: Job) -> str:
    """Return the GPUs that a job may use, as CUDA_VISIBLE_DEVICES has them; empty for all.

    A scheduler gives each of its jobs some, by this variable of the caller. Not every cluster hides the others.
    """
    return os.environ.get(_VISIBLE, "") if job.gpu else ""


def name(job: Job) -> dict[str, str]:
    """Return the variables by which a job sees no other GPUs than it may use."""
    hidden = _NONE if os.environ.get(_VISIBLE) == _NONE else ""
    chosen, order = choose(job) or hidden, os.environ.get(_ORDER, "")
    return {_VISIBLE: chosen, **({_ORDER: order} if order else {})} if chosen else {}


def split(text: str) -> list[str]:
    """Return the GPUs in a value of CUDA_VISIBLE_DEVICES, by number or name. CUDA stops at the first that is none."""
    return list(takewhile(lambda name: name not in {"", "-1"}, text.replace(" ", "").split(",")))
