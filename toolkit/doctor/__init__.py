"""Preflight: what this machine can and cannot do, each finding with its remedy."""

from toolkit.doctor import building, containers, gpu, machine, sources
from toolkit.findings import Finding
from toolkit.settings import Settings


def examine(settings: Settings, *, offline: bool = False) -> list[Finding]:
    """Run all checks and return their findings.

    Args:
        settings: what the user asks for; a finding may depend on it.
        offline: do not ask whether the sources can be reached.
    """
    checks = [containers.check, machine.check, gpu.check, building.check, *([] if offline else [sources.check])]
    return [finding for check in checks for finding in check(settings)]
