"""Preflight: what this machine can and cannot do, each finding with its remedy."""

from toolkit.doctor import machine, services
from toolkit.findings import Finding
from toolkit.settings import Settings


def examine(settings: Settings, *, offline: bool = False) -> list[Finding]:
    """Run all checks and return their findings.

    Args:
        settings: what the user asks for; a finding may depend on it.
        offline: do not ask whether the sources can be reached.
    """
    checks = [
        services.check_engine,
        machine.check,
        machine.check_gpu,
        machine.check_build,
        *([] if offline else [services.check_sources]),
    ]
    return [finding for check in checks for finding in check(settings)]
