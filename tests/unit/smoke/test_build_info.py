import re
from typing import Any

import pytest

from tests.unit.smoke.conftest import Site
from tests.unit.smoke.published import PUBLISHED
from toolkit.smoke.checks import compiler, installation, libraries
from toolkit.smoke.checks.check import Expectation, Fail, Skip

ASKED = Expectation(cuda="12.6.1", cudnn="9.5.0", capability="7.5")
CPU = {"is_cuda_build": False, "is_rocm_build": False, "is_tensorrt_build": False}


def test_the_published_wheel_serves_the_founding_set(site: Site) -> None:
    installation.build_info(ASKED)
    installation.build_cuda(ASKED)
    assert installation.build_capabilities(ASKED)["covered_by"] == "sm_70 machine code of an earlier minor version"


def test_no_build_info_fails(site: Site) -> None:
    del site.module.sysconfig
    with pytest.raises(Fail, match=r"no sysconfig\.get_build_info"):
        installation.build_info(Expectation())


def test_a_module_that_contradicts_its_build_info_fails(site: Site) -> None:
    site.module.test.is_built_with_cuda = lambda: False
    with pytest.raises(Fail, match="is_cuda_build=True"):
        installation.build_info(Expectation())


@pytest.mark.parametrize("asked", [Expectation(cuda="12.6.1"), Expectation(cudnn="9.5.0"), Expectation(device="gpu")])
def test_a_cpu_build_where_cuda_was_asked_for_fails(site: Site, asked: Expectation) -> None:
    site.build = dict(CPU)
    for probe in (installation.build_info, installation.build_cuda, installation.build_capabilities):
        with pytest.raises(Fail, match="built without"):
            probe(asked)


def test_a_cpu_build_is_skipped_where_nothing_was_asked(site: Site) -> None:
    site.build = dict(CPU)
    installation.build_info(Expectation())
    probes = [installation.build_cuda, installation.build_capabilities, compiler.libdevice, compiler.ptxas]
    for probe in (*probes, libraries.reachable, libraries.load, libraries.versions):
        with pytest.raises(Skip, match="built without CUDA, and none was asked for"):
            probe(Expectation())


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


def test_a_build_for_an_equal_or_earlier_cudnn_passes(site: Site) -> None:
    for version in ("9", "9.3.0", "9.5.0", "9.5.1"):
        site.build = {**PUBLISHED, "cudnn_version": version}
        installation.build_cuda(ASKED)


@pytest.mark.parametrize("built", [["sm_80", "compute_90"], ["sm_60"]])
def test_a_capability_without_kernels_fails(site: Site, built: list[str]) -> None:
    site.build = {**PUBLISHED, "cuda_compute_capabilities": built}
    with pytest.raises(Fail, match=r"no kernel for compute capability 7\.5"):
        installation.build_capabilities(ASKED)


def test_a_gpu_build_without_any_capability_fails_unasked(site: Site) -> None:
    site.build = {**PUBLISHED, "cuda_compute_capabilities": []}
    with pytest.raises(Fail, match="lists no compute capabilities"):
        installation.build_capabilities(Expectation())
