from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import ImageNotFound

from toolkit.base import naming
from toolkit.base.errors import PreflightError
from toolkit.engine import EnvironmentPlan, EnvironmentSpec
from toolkit.engine.client import BaseImage, CrossPlatform, select_crossing
from toolkit.engine.docker import plan_image
from toolkit.versions import settings

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


ARM = settings.resolve({"platform": "linux/arm64"}, environment={})


def _cross(base_id: str = "sha256:1", own_id: str = "sha256:2") -> EnvironmentPlan:
    own = BaseImage(reference="base:1-arm64", identity=own_id)
    crossing = CrossPlatform(platform="linux/arm64", machine="aarch64", base=own)
    return plan_image(CPU, BaseImage(reference="base:1", identity=base_id), state=Path("state"), crossing=crossing)


def test_an_image_for_another_platform_stands_on_its_base_and_is_made_on_that_of_this_machine() -> None:
    words = _argv(_cross())
    assert words[words.index("--platform") + 1] == "linux/arm64"
    assert {"BASE_IMAGE=base:1", "RUNTIME_BASE=base:1-arm64", "TARGET_MACHINE=aarch64"} <= {*words}
    assert "org.opencontainers.image.base.name=base:1-arm64" in words
    assert "--platform" not in _argv(_plan())
    assert len({_cross().digest, _cross("sha256:3").digest, _cross(own_id="sha256:3").digest, _plan().digest}) == 4


def test_the_base_of_another_platform_is_beside_that_of_this_machine_or_in_its_registry() -> None:
    def get(name: str) -> Any:
        if name not in images:
            raise ImageNotFound("none")
        return SimpleNamespace(id="sha256:a", attrs={})

    client: Any = SimpleNamespace(images=SimpleNamespace(get=get))
    images = {"base:1-arm64"}
    base = BaseImage(reference="base:1", identity="sha256:b")
    assert select_crossing(client, ARM, base).base == BaseImage(reference="base:1-arm64", identity="sha256:a")
    images.clear()
    public = BaseImage(reference="base:1", identity="sha256:b", registered=True)
    found = select_crossing(client, ARM, public)
    assert (found.base, found.machine) == (public, "aarch64")
    with pytest.raises(PreflightError, match="there is no base image base:1-arm64") as caught:
        select_crossing(client, ARM, base)
    assert "docker/base/bootstrap --platform linux/arm64" in caught.value.remedy
