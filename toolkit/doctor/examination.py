"""Examines this machine: runs every check, and says which failures stand in nobody's way here."""

from dataclasses import replace

from toolkit.base.findings import Finding
from toolkit.doctor import advice, hardware, services
from toolkit.engine.packed import PACKERS
from toolkit.versions.settings import Settings

_BUILD = ("versions", "source-build", "source-github", "source-nvidia", "source-debian")
"""Checks of what only a build of TensorFlow from source needs; `toolkit build-wheel` says it again."""


def examine(settings: Settings, *, offline: bool = False) -> list[Finding]:
    checks = [
        services.check_engine,
        services.check_packers,
        hardware.check,
        advice.check_gpu,
        hardware.check_build,
        *([] if offline else [services.check_sources]),
    ]
    findings = [finding for check in checks for finding in check(settings)]
    spared = _list_spared(findings, settings)
    return [
        replace(finding, state="unneeded", remedy="") if finding.level == "warn" and finding.id in spared else finding
        for finding in findings
    ]


def _list_spared(findings: list[Finding], settings: Settings) -> set[str]:
    """Return the checks whose failure stands in nobody's way here: what other machines or other commands need."""
    states = {finding.id: finding.state for finding in findings}
    spared = {*_BUILD} if settings.sources.get("cuda", "default") == "default" else set()
    if states.get("gpu") == "absent":  # no card, and no reason to think that there is one
        spared |= {"gpu", "nvidia-runtime"}
    spared |= PACKERS.keys() - {settings.engine}
    if settings.engine != "docker" and states.get("python") == "ok":
        spared |= {"engine", "buildx", "compose", "base-image"}
    return spared
