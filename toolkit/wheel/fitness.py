from collections.abc import Iterator, Mapping

from toolkit.errors import CheckError, UnsupportedError
from toolkit.smoke.inside.gpu_rules import compare_cudnn
from toolkit.versions import numbers
from toolkit.wheel import library
from toolkit.wheel.inspection import Inspection

NAME = "tensorflow"
MACHINE = "x86_64"
_STUBS = ("libcuda.so", "libnvrtc-builtins.so")
"""Libraries of the driver and of one CUDA release: a wheel that is linked to them fails to import on other machines."""


def check(found: Inspection, spec: Mapping[str, str]) -> None:
    mismatches = list(find_mismatches(found, spec))
    if mismatches:
        raise CheckError(
            f"{found.file} is not the wheel that was asked for",
            why="; ".join(mismatches),
            remedy="the build log shows the configuration that Bazel was given",
        )


def find_mismatches(found: Inspection, spec: Mapping[str, str]) -> Iterator[str]:
    if found.name != NAME:
        yield f"its name is {found.name}, not {NAME}"
    if found.version != spec["tensorflow"]:
        yield f"it is TensorFlow {found.version}, not {spec['tensorflow']}"
    if not all(name.endswith(f"_{MACHINE}") for name in found.platforms):
        yield f"it is for {', '.join(found.platforms)}, not {MACHINE}"
    python = _tag(spec["python"])
    if python not in found.pythons:
        yield f"it is for {', '.join(found.pythons)}, not {python} (tensorflow#72166)"
    linked = [name for name in found.needed if name.startswith(_STUBS)]
    if linked:
        yield f"it is linked to {', '.join(linked)}, which it must load by itself (tensorflow#86413)"
    if not found.build.is_cuda:
        yield "it is a CPU build"
        return
    if found.build.cuda != spec["cuda"]:
        yield f"it was built with CUDA {found.build.cuda}, not {spec['cuda']}"
    # Hermetic builds write the major version of cuDNN only.
    if found.build.cudnn.split(".") != spec["cudnn"].split(".")[: found.build.cudnn.count(".") + 1]:
        yield f"it was built with cuDNN {found.build.cudnn}, not {spec['cudnn']}"
    asked = spec["capabilities"].split(",")
    if sorted(found.build.capabilities) != sorted(asked):
        yield f"its build_info names {', '.join(found.build.capabilities) or 'no capabilities'}, not {', '.join(asked)}"
    wanted = {f"sm_{numbers.strip_suffix(numbers.to_plain(item)).replace('.', '')}" for item in asked}
    missing = sorted(wanted - set(found.architectures))
    if missing:
        held = ", ".join(found.architectures) or "none at all"
        yield f"its libraries hold no machine code for {', '.join(missing)}, but {held}"


def require(
    found: Inspection,
    *,
    tensorflow: str,
    python: str,
    cuda: str = "",
    cudnn: str = "",
    built_cudnn: str = "",
    glibc: str = "",
    base_python: str = "",
) -> None:
    """Check that an environment can run a wheel. Raises UnsupportedError: it cannot.

    An empty value is unknown. ``glibc`` and ``base_python`` are of the base image. Without ``cuda``, a wheel computes
    on the CPU. ``built_cudnn``: the release that the wheel was built for, from its manifest.
    """
    if found.version != tensorflow:
        raise UnsupportedError(
            f"{found.file} is TensorFlow {found.version}, not {tensorflow}",
            remedy=f"give --tensorflow {found.version}, or another wheel",
        )
    if _tag(python) not in found.pythons:
        raise UnsupportedError(
            f"{found.file} is not for Python {python}",
            why=f"it is for {', '.join(found.pythons)}, and {_tag(python)} is needed",
            remedy=f"build it with --python {python}",
        )
    if base_python and base_python != python:
        raise UnsupportedError(
            f"{found.file} is for Python {python}, and the base image has {base_python}",
            remedy=f"choose a base image with Python {python}: --base-image",
        )
    if cuda and found.build.cuda and library.order(found.build.cuda) > library.order(cuda):
        raise UnsupportedError(
            f"{found.file} is built for CUDA {found.build.cuda}, and the run-time set is of {cuda}",
            why="CUDA's libraries run code that was built for them or for an older release of the same major version",
            remedy=f"give --cuda {found.build.cuda}, or another wheel",
        )
    if compare_cudnn(built_cudnn, cudnn):
        raise UnsupportedError(
            f"{found.file} is built for cuDNN {built_cudnn}, and the run-time set has {cudnn}",
            why="TensorFlow loads the major version that it was built for, and no older minor version",
            remedy=f"give --cudnn {built_cudnn} with its CUDA, or another wheel",
        )
    needed = found.symbols.get("GLIBC", "0")
    if glibc and library.order(needed) > library.order(glibc):
        raise UnsupportedError(
            f"{found.file} needs glibc {needed}, and the base image has {glibc}",
            why="a program runs on the C library that it was linked against, or on a newer one",
            remedy="choose a newer base image with --base-image, or build the wheel on an older one",
        )


def _tag(python: str) -> str:
    return f"cp{python.replace('.', '')}"
