"""Checks what TensorFlow says it was built with. ``libraries.versions`` checks what it loads, which may differ."""

from typing import Any

from .check import TENSORFLOW, Ask, Check, Evidence, Fail, Skip, load_tensorflow, require_attribute
from .gpu_rules import compare_cuda, compare_cudnn, find_coverage, read_numbers

_LOCAL_REMEDY = "build a wheel for it: toolkit build-wheel"


def info() -> dict[str, Any]:
    return dict(require_attribute(load_tensorflow(), "sysconfig.get_build_info")())


def require_cuda(ask: Ask) -> dict[str, Any]:
    """Return the build info of a CUDA build. Raises Fail if CUDA, a capability or a GPU was asked for, else Skip."""
    built = info()
    if built.get("is_cuda_build"):
        return built
    if ask.cuda or ask.cudnn or ask.capability or ask.device == "gpu":
        raise Fail("this TensorFlow was built without CUDA", remedy=_LOCAL_REMEDY, build=built)
    raise Skip("this TensorFlow was built without CUDA, and none was asked for")


def consistent(ask: Ask) -> Evidence:
    built = info()
    evidence = {"build": built}
    says = bool(require_attribute(load_tensorflow(), "test.is_built_with_cuda")())
    if says != bool(built.get("is_cuda_build")):
        raise Fail(
            f"build info says is_cuda_build={built.get('is_cuda_build')}, tf.test.is_built_with_cuda() says {says}",
            remedy="files of two builds are mixed: make a fresh environment",
            **evidence,
        )
    if (ask.cuda or ask.cudnn or ask.device == "gpu") and not says:
        raise Fail("CUDA was asked for, this TensorFlow was built without it", remedy=_LOCAL_REMEDY, **evidence)
    return evidence


def cuda(ask: Ask) -> Evidence:
    """Check that the CUDA and cuDNN asked for can serve the build.

    CUDA: same major version, which is what NVIDIA's minor version compatibility promises. cuDNN: same major version,
    and no later minor than the one that will be loaded, because TensorFlow refuses an older library than its headers. A
    part that build info lacks (the published wheel says only ``9`` for cuDNN) is not compared.
    """
    built = require_cuda(ask)
    evidence = {
        "built": {"cuda": built.get("cuda_version"), "cudnn": built.get("cudnn_version")},
        "asked": {"cuda": ask.cuda, "cudnn": ask.cudnn},
    }
    remedy = "install the component wheels that this build wants, or build for these"
    for name, asked, compare in (("cuda", ask.cuda, compare_cuda), ("cudnn", ask.cudnn, compare_cudnn)):
        have = built.get(f"{name}_version")
        if not read_numbers(have):
            raise Fail(f"build info does not tell the {name} version", remedy=_LOCAL_REMEDY, **evidence)
        if compare(have, asked) == "major":
            text = f"built for {name} {have}, asked for {asked}: another major version"
            raise Fail(text, remedy=remedy, **evidence)
    if compare_cudnn(built["cudnn_version"], ask.cudnn) == "older":
        raise Fail(
            f"built for cuDNN {built['cudnn_version']}, asked for the older {ask.cudnn}", remedy=remedy, **evidence
        )
    return evidence


def capabilities(ask: Ask) -> Evidence:
    built = require_cuda(ask)
    have = [str(item) for item in built.get("cuda_compute_capabilities") or []]
    evidence: Evidence = {"built": have, "asked": ask.capability}
    if not have:
        raise Fail("build info lists no compute capabilities", remedy=_LOCAL_REMEDY, **evidence)
    if not ask.capability:
        return evidence
    how = find_coverage(have, ask.capability)
    if how is None:
        raise Fail(
            f"no kernel for compute capability {ask.capability} among {', '.join(have)}",
            remedy=f"build one: toolkit build-wheel --compute-capability {ask.capability}",
            **evidence,
        )
    return {**evidence, "covered_by": how}


CHECKS = (
    Check("build.info", "build info is there and agrees with the module", consistent, needs=(TENSORFLOW,)),
    Check("build.cuda", "the CUDA and cuDNN as built can be served by those asked for", cuda, needs=(TENSORFLOW,)),
    Check(
        "build.capabilities", "the kernels as built run on the capability asked for", capabilities, needs=(TENSORFLOW,)
    ),
)
