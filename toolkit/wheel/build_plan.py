import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolkit import digest, files, project, steps
from toolkit.errors import IntegrityError, UnsupportedError, UsageError
from toolkit.lock import Lock, rank
from toolkit.steps import Plan, Step, quote_fields, repeat
from toolkit.versions import load_table
from toolkit.versions.table import FIRST_PLATFORM
from train.system.addresses import find_credentials

TARGET = "wheel-from-source"
LOG_TARGET = "bazel-log"
IMAGE_SCHEME = "docker-image://"
_REPLACED = {"source": "tensorflow-commit", "bazel": "bazel-sha256"}
"""The pin that each context replaces."""
_CREDENTIALS = re.compile(r"^--\w*header(?:=|$)")
"""Flags with credentials. As build arguments they would stay in the image's history, the log and the manifest."""
_CACHE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_DOWNLOADS = ("distdir", "repository_cache")
_EXECUTORS = ("grpc://", "grpcs://")
_CACHES = ("http://", "https://", *_EXECUTORS)
"""``unix:`` is missing because the build's container cannot see a socket of this machine."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options that do not affect the result. They are not in the plan's digest."""

    jobs: int = 0  # parallel actions; 0: by cores and memory
    memory: int = 0  # MiB that Bazel may plan with; 0: all of the machine's
    remote_cache: str = ""  # remote_cache, remote_executor: URL of an existing service, or empty
    remote_executor: str = ""
    remote_instance: str = ""  # name of an instance of these services; empty: one made from the toolchain
    bazelrc: str = ""  # rc file with credentials for these services; it enters no layer
    ca_bundle: str = ""  # PEM file for networks that intercept https; it enters no layer
    downloads: str = ""  # folder with the files that Bazel would download, for machines without a network
    # name of the cache mounts; builds with the same name share compiled files
    cache_id: str = "tensorflow"
    fresh: bool = False  # ignore the caches of earlier builds
    base: str = ""  # the base image with its digest; empty for the name that the lock gives
    # contexts that replace all stages that need a network; not empty: the network is closed
    stages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    location: str  # value for ``--build-context NAME=``
    identity: str  # content digest, commit, or image digest


@dataclass(frozen=True, kw_only=True)
class WheelPlan:
    lock: Lock  # every pin
    digest: str  # content digest of everything that affects the result
    arguments: dict[str, str]  # build arguments by name
    contexts: dict[str, str]  # location of each named context
    secrets: dict[str, str]  # files by secret id
    fresh: bool = False  # whether the build uses no caches
    origins: dict[str, str] = field(default_factory=dict)  # identity of each context that replaces a pinned source
    stages: Mapping[str, str] = field(default_factory=dict)  # as in the options; where the build runs, no part of it

    @property
    def name(self) -> str:
        return digest.shorten(self.digest)

    @property
    def platform(self) -> str:
        return self.lock.spec.get("platform", FIRST_PLATFORM)

    @property
    def floating(self) -> tuple[str, ...]:
        """Names of unpinned inputs: empty pins, and replacement images that are known only by name."""
        replaced = {_REPLACED[name] for name in self.origins}
        by_name = [name for name, identity in self.origins.items() if identity.startswith(IMAGE_SCHEME)]
        return (*(name for name in self.lock.floating if name not in replaced), *by_name)

    @property
    def level(self) -> str:
        return rank(self.floating)

    def command(self, output: Path, *, target: str = TARGET, run_name: Path | None = None) -> tuple[str, ...]:
        """Return the command of a stage. ``run_name``: file with the build's name, a secret: no part of cache keys."""
        secrets = self.secrets | ({"run": str(run_name)} if run_name else {})
        return self._compose(target, ["--output", quote_fields("type=local", f"dest={output}")], secrets)

    def image_command(self, target: str, tag: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command of a stage that becomes an image on the engine."""
        result = ["--tag", tag, "--load", *repeat("--label", (f"{name}={value}" for name, value in labels.items()))]
        return self._compose(target, result, self.secrets)

    def _compose(self, target: str, result: Sequence[str], secrets: Mapping[str, str]) -> tuple[str, ...]:
        argv = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile"))]
        argv += ["--target", target, *result, "--provenance", "false", "--progress", "rawjson"]
        # On an engine of another machine, Bazel for this platform does not start.
        argv += ["--platform", self.platform] if self.platform != FIRST_PLATFORM else []
        argv += ["--no-cache"] if self.fresh else []
        argv += repeat("--build-arg", (f"{name}={value}" for name, value in self.arguments.items()))
        contexts = self.contexts
        if self.stages:
            # A cache or a farm may be in the same network as this machine.
            argv += [] if {"REMOTE_CACHE", "REMOTE_EXECUTOR"} & self.arguments.keys() else ["--network", "none"]
            # Its place is known, for the record. BuildKit would look for it there, and a stage has it already.
            contexts = {name: value for name, value in contexts.items() if name != "bazel"} | {**self.stages}
        argv += repeat("--build-context", (f"{name}={value}" for name, value in contexts.items()))
        argv += repeat("--secret", (quote_fields(f"id={name}", f"src={path}") for name, path in secrets.items()))
        return (*argv, str(project.ROOT))

    def step(self, dist: Path) -> Step:
        """Return the build as a step. A build writes to a staging folder and renames it, so its ``dest`` differs."""
        output = dist / self.name
        return Step(
            title="wheel",
            commands=(self.command(output),),
            inputs={"lock": self.lock.digest, **self.origins},
            outputs=(str(output),),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "lock": self.lock.describe(),
            "arguments": dict(self.arguments),
            "contexts": dict(self.contexts),
            "origins": dict(self.origins),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "WheelPlan":
        """Return the plan that :meth:`to_json` described. Raises IntegrityError: it is no plan of a wheel."""
        try:
            lock = Lock(spec=dict(value["lock"]["spec"]), pins=dict(value["lock"]["pins"]))
            return cls(
                lock=lock,
                digest=str(value["digest"]),
                arguments=dict(value["arguments"]),
                contexts=dict(value["contexts"]),
                secrets={},
                origins=dict(value["origins"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise IntegrityError("not the plan of a wheel", why=repr(error)) from error


def write(folder: Path, wheel_plan: WheelPlan, step: Step) -> None:
    value = {**Plan(steps=(step,)).to_json(), "wheel": wheel_plan.to_json()}
    files.write_json(folder / steps.FILE, value)


def read(folder: Path) -> WheelPlan | None:
    """Return the plan in a wheel's folder; None for earlier versions. Raises IntegrityError: it is damaged."""
    if not (folder / steps.FILE).exists():
        return None
    value = files.read_json(folder / steps.FILE)
    if not isinstance(value, dict) or not isinstance(value.get("wheel"), dict):
        raise IntegrityError(f"{folder / steps.FILE} is not the plan of a wheel", remedy="build the wheel again")
    return WheelPlan.from_json(value["wheel"])


def plan(
    lock: Lock,
    options: BuildOptions,
    *,
    source: BuildContext | None = None,
    bazel: BuildContext | None = None,
    bazel_arguments: Sequence[str] = (),
) -> WheelPlan:
    """Plan a wheel. ``source`` and ``bazel`` replace pinned ones; pinned flags win over ``bazel_arguments``.

    Raises UnsupportedError: TensorFlow's commit or Bazel's hash is unknown; UsageError: an option or a flag is invalid.
    """
    _require_sources(lock, source, bazel)
    _require_options(options)
    _require_words(bazel_arguments)
    origins = {name: item for name, item in (("source", source), ("bazel", bazel)) if item}
    identities = {name: item.identity for name, item in origins.items()}
    contexts = {name: item.location for name, item in origins.items()}
    if options.downloads:
        contexts["downloads"] = str(Path(options.downloads).resolve())
    secrets = {"ca": options.ca_bundle, "bazelrc": options.bazelrc}
    return WheelPlan(
        lock=lock,
        digest=digest.digest_value({"lock": lock.describe(), "origins": identities, "bazel": list(bazel_arguments)}),
        arguments=_list_arguments(lock, options, origins.keys(), bazel_arguments),
        contexts=contexts,
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        fresh=options.fresh,
        origins=identities,
        stages=options.stages,
    )


def _list_arguments(
    lock: Lock, options: BuildOptions, replaced: Container[str], bazel_arguments: Sequence[str]
) -> dict[str, str]:
    spec, pins = lock.spec, lock.pins
    arguments = {
        "BASE_IMAGE": options.base or pins["base-image"],
        "SOURCE_DATE_EPOCH": pins["source-date-epoch"],
        "APT_SNAPSHOT": pins["apt-snapshot"],
        "LLVM_VERSION": spec["clang"],
        "GCC_VERSION": spec.get("gcc", ""),  # the plans of earlier versions have none
        "CUDA_VERSION": spec["cuda"],
        "CUDNN_VERSION": spec["cudnn"],
        "COMPUTE_CAPABILITIES": spec["capabilities"],
        "PYTHON_VERSION": spec["python"],
        "TENSORFLOW_VERSION": spec["tensorflow"],
        "TENSORFLOW_COMMIT": "" if "source" in replaced else pins["tensorflow-commit"],
        "BAZEL_VERSION": spec["bazel"],
        "BAZEL_MACHINE": load_table().platform(spec.get("platform", FIRST_PLATFORM)).bazel,
        "BAZEL_SHA256": "" if "bazel" in replaced else pins["bazel-sha256"],
        "BAZEL_JOBS": str(options.jobs or ""),
        "BAZEL_MEMORY": str(options.memory or ""),
        "BAZEL_ARGUMENTS": " ".join(bazel_arguments),
        "REMOTE_CACHE": options.remote_cache,
        "REMOTE_EXECUTOR": options.remote_executor,
        "REMOTE_INSTANCE_NAME": options.remote_instance,
        "GLIBC": spec.get("glibc", ""),
        "CACHE_ID": name_cache(options.cache_id, spec),
    }
    # An empty argument would override the Dockerfile's default.
    return {name: value for name, value in arguments.items() if value}


def name_cache(name: str, spec: Mapping[str, str]) -> str:
    """Return the name of the cache mounts. The C library is no input of Bazel's actions: each has caches of its own."""
    return f"{name}-glibc-{spec['glibc']}" if spec.get("glibc") else name


def _require_sources(lock: Lock, source: BuildContext | None, bazel: BuildContext | None) -> None:
    if source is None and not lock.pins["tensorflow-commit"]:
        raise UnsupportedError(
            f"the commit of TensorFlow {lock.spec['tensorflow']} is not known here",
            remedy="run `toolkit lock` with network access, or give --source URL#COMMIT",
        )
    if bazel is None and not lock.pins["bazel-sha256"]:
        raise UnsupportedError(
            f"the hash of Bazel {lock.spec['bazel']} is not known here",
            remedy="give a Bazel that you trust: --bazel DIR",
        )


def _require_options(options: BuildOptions) -> None:
    if not _CACHE_NAME.fullmatch(options.cache_id):
        raise UsageError(f"--cache: not a name: {options.cache_id!r}", remedy="letters, digits, dots, dashes")
    for option, url, schemes in (
        ("--remote-cache", options.remote_cache, _CACHES),
        ("--remote-executor", options.remote_executor, _EXECUTORS),
    ):
        if url and not url.startswith(schemes):
            raise UsageError(f"{option} is not the URL of a service: {url!r}", remedy=f"one of {', '.join(schemes)}…")
        if "@" in url or find_credentials(url):
            # A build argument is kept in the image's history and in the log.
            raise UsageError(f"{option} has credentials in it", remedy="put them into a bazelrc file: --bazelrc FILE")
    if options.remote_instance and not (options.remote_executor or options.remote_cache.startswith(_EXECUTORS)):
        raise UsageError(
            "--remote-instance-name is given without a service that has instances",
            remedy="give --remote-executor too, or a --remote-cache that begins with grpc:// or grpcs://",
        )
    if re.search(r"\s", options.remote_instance):
        raise UsageError(f"--remote-instance-name is not a name: {options.remote_instance!r}", remedy="without blanks")
    for option, path in (("--bazelrc", options.bazelrc), ("--ca-bundle", options.ca_bundle)):
        if path and not Path(path).is_file():
            raise UsageError(f"{option}: there is no file {path}")
    if options.downloads and not any((Path(options.downloads) / name).is_dir() for name in _DOWNLOADS):
        raise UsageError(
            f"--downloads: {options.downloads} has neither of {' and '.join(_DOWNLOADS)}",
            why="everything would be fetched from the network",
            remedy="put archives into distdir by name, or content_addressable of Bazel's repository cache into "
            "repository_cache",
        )


def _require_words(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if _CREDENTIALS.search(argument) or find_credentials(argument):
            name = argument.partition("=")[0]
            raise UsageError(
                f"--bazel-argument {name} has credentials in it", remedy="put it into a bazelrc file: --bazelrc FILE"
            )
        if not argument.startswith("--") or len(argument.split()) != 1:
            raise UsageError(
                f"not a flag for Bazel: {argument!r}", remedy="one word that begins with --; repeat the option for more"
            )
