"""The plan of an image: its digest follows from what goes in, and from nothing else."""

from pathlib import Path

import pytest

from toolkit import image, naming
from toolkit.recipe import Recipe

CPU = Recipe(tensorflow="2.19.0", python="3.11")
CUDA = Recipe(tensorflow="2.19.0", python="3.11", cuda="12.6.1", cudnn="9.5.0", requirements="cuda-12.6.1")


def _plan(recipe: Recipe = CPU, **changes: str) -> image.ImagePlan:
    return image.plan(recipe, **{"target": "train", "base": "base:1", "base_id": "sha256:1", **changes})


def test_the_same_inputs_make_the_same_plan() -> None:
    assert _plan() == _plan()


@pytest.mark.parametrize("changes", [{"target": "runtime"}, {"base_id": "sha256:2"}])
def test_another_input_makes_another_digest(changes: dict[str, str]) -> None:
    assert _plan(**changes).digest != _plan().digest


def test_another_set_makes_another_digest() -> None:
    assert _plan(CUDA).digest != _plan().digest
    assert "REQUIREMENTS=cuda-12.6.1" in _plan(CUDA).argv


def test_certificates_are_a_secret_and_change_nothing_else() -> None:
    plan = _plan(ca_bundle="ca.pem")
    assert plan.digest == _plan().digest
    assert "id=ca,src=ca.pem" in plan.argv
    assert not any("ca.pem" in part for part in plan.argv if part.startswith(("BASE", "REQ", "SOURCE")))


def test_a_wheel_of_our_own_is_a_context_and_a_label(tmp_path: Path) -> None:
    wheel = tmp_path / "tensorflow-2.19.0-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"a wheel")
    plan = _plan(Recipe(tensorflow="2.19.0", python="3.11", wheel=wheel))
    assert f"wheel={tmp_path}" in plan.argv
    assert any(part.startswith(f"{naming.LABEL_PREFIX}.wheel=sha256:") for part in plan.argv)
    wheel.write_bytes(b"another")
    assert _plan(Recipe(tensorflow="2.19.0", python="3.11", wheel=wheel)).digest != plan.digest


def test_every_image_carries_our_label_and_its_plan() -> None:
    plan = _plan()
    assert f"{naming.OWNER_LABEL}=toolkit" in plan.argv
    assert f"{naming.PLAN_LABEL}={plan.digest}" in plan.argv
