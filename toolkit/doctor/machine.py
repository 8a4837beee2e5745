"""Describes the machine that a TensorFlow is wanted for: its cards, its driver, its system."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU, as its driver, its PCI id or the user names it."""

    name: str
    capability: str  # ``7.5``; empty if nothing tells it
    driver: str = ""  # version of the driver; empty if it is not known
    platform: str = ""  # of the machine that it is in; empty: that of the settings
    is_mig: bool = False
    is_virtual: bool = False  # a vGPU: the host's driver and licence decide


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why the driver did not answer."""

    id: str  # of a row of faults.yaml
    cause: str
    remedy: str
    has_gpu: bool  # whether there is a GPU all the same, as far as one can tell


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What was read of a machine, or what its user says of it."""

    devices: tuple[Device, ...] = ()
    fault: Fault | None = None
    platform: str = "linux/amd64"
    system: str = "linux"  # linux | wsl2 | jetson
    jetson_release: str = ""  # ``R36`` of Jetson Linux
    is_container: bool = False  # this program runs in a container
    glibc: str = ""
    python: str = ""  # that would run it on the host, ``3.11``
    engine: str = ""  # docker | host | apptainer, as chosen; empty: not chosen yet
    has_nvidia_runtime: bool | None = None  # of the engine; None: not asked
    lacks_avx: bool = False  # an x86-64 processor without AVX, which published wheels need
