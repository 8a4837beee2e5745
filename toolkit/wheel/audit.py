"""auditwheel's view of a wheel: the oldest platform that it would run on."""

from dataclasses import dataclass
from pathlib import Path

from auditwheel.error import AuditwheelError
from auditwheel.wheel_abi import NonPlatformWheelError, analyze_wheel_abi
from auditwheel.wheeltools import get_wheel_architecture

from toolkit.errors import IntegrityError


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What ``auditwheel show`` would say.

    Attributes:
        platform: tag that the wheel is consistent with, such as ``manylinux_2_38_x86_64``; ``linux_…`` if with none.
        outside: libraries that it needs and that no policy promises.
    """

    platform: str
    outside: tuple[str, ...]


def audit(path: Path) -> Audit:
    """Ask auditwheel. Takes a minute and a half for a full TensorFlow wheel.

    Raises:
        IntegrityError: it cannot make sense of the wheel.
    """
    try:
        found = analyze_wheel_abi(
            None,
            get_wheel_architecture(path.name),
            path,
            frozenset(),
            disable_isa_ext_check=True,
            allow_graft=False,
        )
    except NonPlatformWheelError:
        return Audit(platform="any", outside=())
    except (AuditwheelError, OSError, ValueError) as error:
        raise IntegrityError(f"auditwheel cannot read {path.name}", why=str(error), remedy="build it again") from error
    outside = found.external_refs[found.policies.highest.name].libs
    return Audit(platform=found.overall_policy.name, outside=tuple(sorted(outside)))
