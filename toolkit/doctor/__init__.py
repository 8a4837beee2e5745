from toolkit.doctor import advice, machine, services
from toolkit.findings import Finding
from toolkit.settings import Settings


def examine(settings: Settings, *, offline: bool = False) -> list[Finding]:
    checks = [
        services.check_engine,
        machine.check,
        advice.check_gpu,
        machine.check_build,
        *([] if offline else [services.check_sources]),
    ]
    return [finding for check in checks for finding in check(settings)]
