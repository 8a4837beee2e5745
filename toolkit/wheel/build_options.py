"""Declares each option of `toolkit build-wheel` once.

From a declaration follow the flag, its help, the build argument of plan and ``docker/Dockerfile``, and the parameter in
the provenance. A Dockerfile cannot read Python, so `make pins` writes the arguments into it. The program in the
container reads them.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal

from toolkit.base.errors import UsageError
from train.system.addresses import find_credentials

CpuTarget = Literal["avx", "native", "x86-64-v2", "x86-64-v3", "x86-64-v4"]

_KEY: Final = "option"
_CREDENTIALS: Final = re.compile(r"^--\w*header(?:=|$)")
"""Flags with credentials. As build arguments they would stay in the image's history, the log and the manifest."""
_CACHE_NAME: Final = re.compile(r"\w[\w.-]*", re.ASCII)
_EXECUTORS: Final = ("grpc://", "grpcs://")
_CACHES: Final = ("http://", "https://", *_EXECUTORS)
"""``unix:`` is missing because the build's container cannot see a socket of this machine."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """What an option has besides its name, type and default."""

    help: str
    name: str = ""  # how it is written; empty: as the field is called
    metavar: str | None = None
    least: int | None = None
    argument: str = ""  # its build argument in docker/Dockerfile; empty if it has none
    write: Callable[[Any], str] = str  # turns the value into the text of the argument
    completed: bool = False  # whether the plan fills in the argument, because it depends on other facts too
    recorded: str = ""  # its name in the provenance; empty if versions and pins tell it, or it cannot change the wheel


def _option(text: str, default: Any, **known: Any) -> Any:
    return dataclasses.field(default=default, metadata={_KEY: Option(help=text, **known)})


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How a user wants a wheel to be built. The versions are in :class:`toolkit.versions.settings.Settings`."""

    compute_capability: tuple[str, ...] = _option(
        "GPU to build for, as 7.5, sm_75 or compute_75; repeatable.",
        (),
        metavar="X.Y",
        argument="COMPUTE_CAPABILITIES",
        completed=True,
    )
    source: str = _option("Build this source tree, and not that of the release.", "", metavar="DIR|URL#COMMIT")
    bazel: str = _option("Use this Bazel, and not the pinned one.", "", metavar="DIR|docker-image://NAME")
    bazel_argument: tuple[str, ...] = _option(
        "Pass this flag to Bazel; repeatable.",
        (),
        metavar="--FLAG",
        argument="BAZEL_ARGUMENTS",
        completed=True,
        recorded="bazelArguments",
    )
    cpu_target: CpuTarget = _option(
        "Processors to build for. avx: as published wheels; x86-64-v2: without AVX too; native: like this one.",
        "avx",
    )
    jobs: int = _option(
        "Number of actions that Bazel runs at a time; 0: as many as cores and memory allow.",
        0,
        least=0,
        argument="BAZEL_JOBS",
    )
    memory: int = _option(
        "Memory that Bazel may use; 0: four fifths of the machine's.",
        0,
        least=0,
        metavar="GIB",
        argument="BAZEL_MEMORY",
        write=lambda gibibytes: str(gibibytes * 1024),
    )
    remote_cache: str = _option(
        "Use this remote cache of Bazel.", "", metavar="URL", argument="REMOTE_CACHE", recorded="remoteCache"
    )
    remote_executor: str = _option(
        "Let this service run Bazel's actions.",
        "",
        metavar="URL",
        argument="REMOTE_EXECUTOR",
        recorded="remoteExecutor",
    )
    remote_instance_name: str = _option(
        "Instance name at these services; {toolchain} becomes a digest of the compilers. Default: toolkit-{toolchain}.",
        "",
        metavar="NAME",
        argument="REMOTE_INSTANCE_NAME",
        recorded="remoteInstanceName",
    )
    bazelrc: str = _option(
        "Credentials of a remote cache or executor, as an rc file of Bazel. They enter no image layer.",
        "",
        metavar="FILE",
    )
    cache: str = _option(
        "Name of the caches that builds share.", "tensorflow", metavar="NAME", argument="CACHE_ID", completed=True
    )
    exact: bool = _option(
        "Make `pip install WHEEL[and-cuda]` install exactly the CUDA and cuDNN of this build.",
        False,
        name="--exact",
    )
    apt_snapshot: str = _option(
        "Take Debian's packages as of a day, such as 20261121T000000Z.",
        "",
        metavar="DAY",
        argument="APT_SNAPSHOT",
        completed=True,
        recorded="aptSnapshot",
    )
    prove_kernels: str = _option(
        "First compile N sample files of TensorFlow's GPU kernels, or all, so that a failure shows in minutes.",
        "",
        metavar="N|all",
        argument="KERNELS",
        completed=True,
    )

    def list_arguments(self) -> dict[str, str]:
        """Return the build arguments that follow from the value of one option alone, by name."""
        return {
            option.argument: option.write(getattr(self, name))
            for name, option in list_options().items()
            if option.argument and not option.completed and getattr(self, name)
        }

    def check(self) -> None:
        """Raise UsageError if the value of an option is invalid, or options do not go together."""
        if not _CACHE_NAME.fullmatch(self.cache):
            raise UsageError(f"--cache: not a name: {self.cache!r}", remedy="use letters, digits, dots and dashes")
        _require_service("--remote-cache", self.remote_cache, _CACHES)
        _require_service("--remote-executor", self.remote_executor, _EXECUTORS)
        if self.remote_instance_name and not (self.remote_executor or self.remote_cache.startswith(_EXECUTORS)):
            raise UsageError(
                "--remote-instance-name is given without a service that has instances",
                remedy="give --remote-executor too, or a --remote-cache that begins with grpc:// or grpcs://",
            )
        if re.search(r"\s", self.remote_instance_name):
            raise UsageError(
                f"--remote-instance-name is not a name: {self.remote_instance_name!r}",
                remedy="use a name without blanks",
            )
        if self.bazelrc and not Path(self.bazelrc).is_file():
            raise UsageError(f"--bazelrc: there is no file {self.bazelrc}")
        for argument in self.bazel_argument:
            _require_flag(argument)
        count = self.prove_kernels
        if count not in {"", "all"} and not (count.isdecimal() and int(count)):
            raise UsageError(
                f"--prove-kernels: {count!r} is neither a number nor all", remedy="give a number such as 20, or all"
            )


def list_options() -> Mapping[str, Option]:
    """Return what is known about each option, by the name of its field."""
    return {field.name: field.metadata[_KEY] for field in fields(BuildOptions)}


def _require_service(flag: str, url: str, schemes: tuple[str, ...]) -> None:
    if url and not url.startswith(schemes):
        raise UsageError(
            f"{flag} is not the URL of a service: {url!r}", remedy=f"begin it with one of {', '.join(schemes)}"
        )
    if "@" in url or find_credentials(url):
        # A build argument is kept in the image's history and in the log.
        raise UsageError(f"{flag} has credentials in it", remedy="put them into a bazelrc file: --bazelrc FILE")


def _require_flag(argument: str) -> None:
    """Raise UsageError if a text for Bazel is not one flag, or has credentials in it."""
    if _CREDENTIALS.search(argument) or find_credentials(argument):
        name = argument.partition("=")[0]
        raise UsageError(
            f"--bazel-argument {name} has credentials in it", remedy="put it into a bazelrc file: --bazelrc FILE"
        )
    if not argument.startswith("--") or len(argument.split()) != 1:
        raise UsageError(
            f"not a flag for Bazel: {argument!r}",
            remedy="give one word that begins with --, and repeat the option for more",
        )
