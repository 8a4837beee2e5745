from pathlib import Path

import pytest

from toolkit.base import naming
from toolkit.engine import EnvironmentPlan, EnvironmentSpec
from toolkit.engine.client import BaseImage
from toolkit.engine.docker import plan_image

CPU = EnvironmentSpec(tensorflow="2.19.0", python="3.11")


def _plan(spec: EnvironmentSpec = CPU, *, base_id: str = "sha256:1", **changes: str) -> EnvironmentPlan:
    return plan_image(spec, BaseImage(reference="base:1", identity=base_id), state=Path("state"), **changes)  # type: ignore[arg-type]


def _argv(plan: EnvironmentPlan) -> tuple[str, ...]:
    (argv,) = plan.commands
    return argv


@pytest.mark.parametrize("changes", [{"target": "runtime"}, {"base_id": "sha256:2"}])
def test_another_input_makes_another_digest(changes: dict[str, str]) -> None:
    assert _plan(**changes).digest != _plan().digest


def test_a_wheel_of_our_own_is_a_context_and_a_label(tmp_path: Path) -> None:
    wheel = tmp_path / "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"a wheel")
    plan = _plan(EnvironmentSpec(tensorflow="2.19.0", python="3.11", wheel=wheel))
    assert f"wheel={tmp_path}" in _argv(plan)
    assert any(part.startswith(f"{naming.LABEL_PREFIX}.wheel=sha256:") for part in _argv(plan))
    wheel.write_bytes(b"another")
    assert _plan(EnvironmentSpec(tensorflow="2.19.0", python="3.11", wheel=wheel)).digest != plan.digest
