"""Holds the driver of a machine against the CUDA that it is to run, and against the card that it is to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from toolkit.base.errors import UsageError, refer
from toolkit.base.findings import Finding
from toolkit.checks.gpu_rules import parse_capability
from toolkit.doctor.machine import Device, Machine
from toolkit.versions import numbers
from toolkit.versions.table import DriverBranch, Table

Fit = Literal["exact", "minor", "too-old", "too-new", "unknown", "n/a"]

RUNNING: Final[frozenset[Fit]] = frozenset({"exact", "minor", "unknown"})
"""What a driver may be for a command to use the GPU."""

REFERENCES: Final[Mapping[Fit, str]] = {
    "too-old": refer("driver-too-old"),
    "too-new": refer("driver-does-not-support-card"),
}
"""Where a driver that does not fit is explained."""


@dataclass(frozen=True, kw_only=True)
class DriverRules:
    """Which drivers the CUDA releases of a table need on a machine. WSL2 has the numbers of Windows' drivers."""

    table: Table
    machine: Machine

    def compare(self, device: Device, cuda: str) -> Fit:
        """Compare the driver of a card with a CUDA release, and with the card itself."""
        if not is_version(device.driver):
            return "unknown"
        branch = self.find_branch(device)
        if branch and reaches(device.driver, branch.next):
            return "too-new"
        newest, oldest = self.name_own(device, cuda), self._name_compatible(cuda)
        first = self._find_first(device.capability)
        if not oldest or not newest:
            return "unknown"
        if (first and not reaches(device.driver, first)) or not reaches(device.driver, oldest):
            return "too-old"
        return "exact" if reaches(device.driver, newest) else "minor"

    def find_branch(self, device: Device) -> DriverBranch | None:
        """Return the last branch of drivers for a card; None if the newest drivers know it."""
        if not parse_capability(device.capability):
            return None
        return next((row for row in self.table.driver_branches if row.affects(device.capability)), None)

    def name_own(self, device: Device, cuda: str) -> str:
        """Return the driver that NVIDIA names for a CUDA release; empty if the table has none."""
        row = self.table.cuda_rows.get(cuda)
        if row is None:
            return ""
        return row.windows_driver if self._is_windows and device.driver else row.driver

    def name_least(self, device: Device, cuda: str) -> str:
        """Return the oldest driver that runs a CUDA release and knows a card; empty if the table has none."""
        known = filter(None, (self._find_first(device.capability), self._name_compatible(cuda)))
        return max(known, key=numbers.to_number, default="")

    def _name_compatible(self, cuda: str) -> str:
        """Return the driver from which on a CUDA release runs by minor-version compatibility."""
        row = self.table.cuda_rows.get(cuda)
        if row is None:
            return ""
        return row.windows_driver_min if self._is_windows else row.driver_min

    def _find_first(self, capability: str) -> str:
        """Return the driver of the first CUDA that knows a capability; empty if every CUDA of the table does."""
        plain, rows = numbers.strip_suffix(capability), [*self.table.cuda_rows.values()]
        known = [plain in row.capabilities for row in rows]
        if not any(known) or known[0]:
            return ""
        row = rows[known.index(True)]
        return row.windows_driver if self._is_windows else row.driver

    @property
    def _is_windows(self) -> bool:
        return self.machine.system == "wsl2"

    def explain(self, device: Device, cuda: str, fit: Fit) -> str:
        """Return the end of a sentence that says how the driver fits."""
        return {
            "exact": f", and driver {device.driver} is new enough for CUDA {cuda}",
            "minor": f", and driver {device.driver} runs CUDA {cuda} by minor-version compatibility",
            "too-old": f", but driver {device.driver} is too old: it takes {self.name_least(device, cuda)} or later",
            "too-new": f", but driver {device.driver} is too new for the card",
            "unknown": f"; its driver is not known: it takes {self.name_least(device, cuda)} or later",
            "n/a": "",
        }[fit]

    def find_remedy(self, device: Device, cuda: str, fit: Fit) -> str:
        """Return what to do about a driver that is too old or too new, and where that failure is explained."""
        return f"{self._name_driver(device, cuda)}; {REFERENCES[fit]}" if fit in REFERENCES else ""

    def _name_driver(self, device: Device, cuda: str) -> str:
        """Return which driver to install, and where."""
        branch, driver = self.find_branch(device), self.name_own(device, cuda)
        if branch:
            driver = f"a driver of branch {' or '.join(branch.install)}, and no later one"
        else:
            driver = f"driver {driver} or a newer one"
        if device.is_virtual:
            return f"ask the administrator of the host for {driver}: it is the host's driver that counts"
        if self._is_windows:
            return f"in Windows, install {driver}; in Linux, install none"
        if self.machine.is_container:
            return f"install {driver} on the host, not in this container"
        return f"install {driver}"

    def check(self, device: Device, cuda: str) -> Finding:
        """Check that the driver of a card runs a CUDA release that was asked for, and knows the card."""
        fit, driver = self.compare(device, cuda), device.driver
        least = self.name_least(device, cuda)
        facts = {"driver": driver, "cuda": cuda}
        if fit == "exact":
            return Finding(id="driver", state="ok", evidence=f"the driver runs CUDA {cuda}", facts=facts)
        if fit == "minor":
            evidence = (
                f"driver {driver} is older than the {self.name_own(device, cuda)} of CUDA {cuda}; it runs it by "
                "minor-version compatibility"
            )
            remedy = "machine code for the GPU's own capability loads; for PTX of a newer CUDA, install a newer driver"
            return Finding(id="driver", state="ok", evidence=evidence, remedy=remedy, facts=facts)
        if fit == "too-old":
            unknown_card = least != self._name_compatible(cuda)
            lacking = f"compute capability {device.capability}" if unknown_card else f"CUDA {cuda}"
            evidence = f"driver {driver} is too old for {lacking}, which needs {least}"
            remedy = self._name_driver(device, cuda)
            if least != self.name_own(device, cuda):
                remedy += f"; {least} is the oldest that runs CUDA {cuda}, by minor-version compatibility"
            remedy += f"{self._name_running(device)}; {REFERENCES[fit]}"
            return Finding(id="driver", state="fail", evidence=evidence, remedy=remedy, facts=facts)
        if fit == "too-new":
            branch = self.find_branch(device)
            last = f": {branch.last} is the last branch that knows it" if branch else ""
            evidence = f"driver {driver} is too new for {device.name}{last}"
            remedy = self.find_remedy(device, cuda, fit)
            return Finding(id="driver", state="fail", evidence=evidence, remedy=remedy, facts=facts)
        evidence = f"it is not known which driver CUDA {cuda} needs"
        return Finding(id="driver", state="fail", advisory=True, evidence=evidence, facts=facts)

    def _name_running(self, device: Device) -> str:
        """Name the newest CUDA release that runs with the driver of a card."""
        running = [name for name in self.table.cuda_rows if self.compare(device, name) in {"exact", "minor"}]
        return f"; or ask for CUDA {running[-1]}" if running else ""


def reaches(driver: str, needed: str) -> bool:
    """Return whether a driver is as new as the one that is needed. A branch alone, 570, is its first release."""
    return numbers.parse(driver, "the driver") >= numbers.parse(needed)


def is_version(text: str) -> bool:
    try:
        numbers.parse(text)
    except UsageError:
        return False
    return True
