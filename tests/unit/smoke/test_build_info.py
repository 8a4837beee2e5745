import re
from typing import Any

import pytest

from tests.unit.smoke.conftest import Site
from tests.unit.smoke.published import PUBLISHED
from toolkit.checks import installation
from toolkit.checks.check import Expectation, Fail

ASKED = Expectation(cuda="12.6.1", cudnn="9.5.0", capability="7.5")


def test_the_published_wheel_serves_the_founding_set(site: Site) -> None:
    installation.build_info(ASKED)
    installation.build_cuda(ASKED)
    assert installation.build_capabilities(ASKED)["covered_by"] == "sm_70 machine code of an earlier minor version"


def test_a_module_that_contradicts_its_build_info_fails(site: Site) -> None:
    site.module.test.is_built_with_cuda = lambda: False
    with pytest.raises(Fail, match="is_cuda_build=True"):
        installation.build_info(Expectation())


@pytest.mark.parametrize(
    ("built", "why"),
    [
        ({"cuda_version": "11.8.0"}, "built for cuda 11.8.0, asked for 12.6.1: another major"),
        ({"cudnn_version": "8"}, "built for cudnn 8, asked for 9.5.0: another major"),
        ({"cudnn_version": "9.6.0"}, "built for cuDNN 9.6.0, asked for the older 9.5.0"),
        ({"cuda_version": ""}, "does not tell the cuda version"),
        ({"cudnn_version": None}, "does not tell the cudnn version"),
    ],
)
def test_an_incompatible_build_fails(site: Site, built: dict[str, Any], why: str) -> None:
    site.build = {**PUBLISHED, **built}
    with pytest.raises(Fail, match=re.escape(why)):
        installation.build_cuda(ASKED)


@pytest.mark.parametrize("built", [["sm_80", "compute_90"], ["sm_60"]])
def test_a_capability_without_kernels_fails(site: Site, built: list[str]) -> None:
    site.build = {**PUBLISHED, "cuda_compute_capabilities": built}
    with pytest.raises(Fail, match=r"no kernel for compute capability 7\.5"):
        installation.build_capabilities(ASKED)
