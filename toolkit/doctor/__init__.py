"""Preflight: what this machine can and cannot do, each finding with its remedy."""

from toolkit.doctor import building, containers, gpu, machine, sources
from toolkit.doctor.finding import Finding, Level
from toolkit.settings import Settings

__all__ = ["Finding", "Level", "examine"]


def examine(settings: Settings, *, offline: bool = False) -> list[Finding]:
    """All findings, in the order in which they matter.

    Args:
        settings: what is wanted; a finding may depend on it.
        offline: do not ask whether the sources can be reached.
    """
    checks = [containers.check, machine.check, gpu.check, building.check, *([] if offline else [sources.check])]
    return [finding for check in checks for finding in check(settings)]
