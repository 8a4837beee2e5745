import os
from collections.abc import Mapping
from dataclasses import dataclass

LIBRARIES = ("cuda", "cudnn")
"""Fields of :class:`Request` for releases of NVIDIA's libraries: the argument of ``cuda`` is ``CUDA_VERSION``."""


class UsageError(Exception):
    """An argument of the Dockerfile is missing or wrong."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The wheel that is wanted and the means to build it, from the arguments of the Dockerfile.

    ``glibc``: the oldest that it runs on; empty for that of the base image. ``memory``: MiB for Bazel. ``progress``:
    seconds between two lines. ``epoch``: the time stamp of the wheel's files. ``toolchain``: the name of the compilers,
    a digest. ``machine``: by the name of the kernel. Without ``cuda``, the wheel is for processors alone.
    """

    tensorflow: str
    python: str
    llvm: str
    jobs: int
    memory: int
    progress: int
    cuda: str = ""
    cudnn: str = ""
    capabilities: str = ""
    epoch: str = ""
    extra: tuple[str, ...] = ()
    remote_cache: str = ""
    remote_executor: str = ""
    remote_instance: str = ""
    toolchain: str = ""
    machine: str = "x86_64"
    glibc: str = ""


def read_request(environment: Mapping[str, str], *, cores: int, memory: int, toolchain: str = "") -> Request:
    """Read the arguments of the Dockerfile, and fit open ones to this machine's cores and memory (MiB).

    One compiler of TensorFlow takes up to 2 GiB (tensorflow#41480), so the default is one job for 2 GiB. Raises
    UsageError.
    """

    def need(name: str) -> str:
        if not environment.get(name):
            raise UsageError(f"the argument {name} is empty")
        return environment[name]

    def count(name: str, default: int) -> int:
        text = environment.get(name) or str(max(1, default))
        if not text.isdecimal() or int(text) < 1:
            raise UsageError(f"{name} must be a positive whole number, not {text!r}")
        return int(text)

    device = need("DEVICE")
    if device not in {"cuda", "cpu"}:
        raise UsageError(f"DEVICE must be cuda or cpu, not {device!r}")
    of_cuda = {**{name: f"{name.upper()}_VERSION" for name in LIBRARIES}, "capabilities": "COMPUTE_CAPABILITIES"}
    return Request(
        **({name: need(argument) for name, argument in of_cuda.items()} if device == "cuda" else {}),
        tensorflow=need("TENSORFLOW_VERSION"),
        python=need("PYTHON_VERSION"),
        llvm=need("LLVM_VERSION"),
        jobs=count("BAZEL_JOBS", min(cores, memory // 2048)),
        memory=count("BAZEL_MEMORY", memory * 4 // 5),
        progress=count("PROGRESS_SECONDS", 5),
        epoch=environment.get("SOURCE_DATE_EPOCH", ""),
        extra=tuple(environment.get("BAZEL_ARGUMENTS", "").split()),
        remote_cache=environment.get("REMOTE_CACHE", ""),
        remote_executor=environment.get("REMOTE_EXECUTOR", ""),
        remote_instance=environment.get("REMOTE_INSTANCE_NAME", ""),
        toolchain=toolchain,
        machine=os.uname().machine,
        glibc=environment.get("GLIBC", "").removeprefix("base"),
    )
