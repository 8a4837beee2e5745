"""The plan of a wheel: one ``docker buildx build`` and the digest that names its result. Pure.

docker/README.md is the other side of this contract: stages, arguments, contexts, secrets.
"""

import csv
import io
import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolkit import digest, project
from toolkit.errors import UnsupportedError, UsageError
from toolkit.lock import Lock, rank
from toolkit.wheel.origin import IMAGE_SCHEME, Origin

TARGET = "wheel-from-source"
LOG_TARGET = "bazel-log"
_REPLACED = {"source": "tensorflow-commit", "bazel": "bazel-sha256"}
"""The pin that each context takes the place of."""
_CREDENTIALS = re.compile(r"^--\w*header(?:=|$)|://[^/@]*@")
"""Flags that carry them: a build argument is kept in the image's history, in the log and in the manifest."""
_CACHE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_DOWNLOADS = ("distdir", "repository_cache")
_EXECUTORS = ("grpc://", "grpcs://")
_CACHES = ("http://", "https://", *_EXECUTORS)
"""Not ``unix:``: a socket of this machine is not there in the container of the build."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """How this machine builds. None of it changes the result, so none of it is in the digest.

    Attributes:
        jobs: parallel actions; 0 leaves it to cores and memory.
        memory: MiB that Bazel may plan with; 0 leaves it to the machine.
        remote_cache, remote_executor: URL of an existing service, or empty.
        remote_instance: name of an instance of these services, or empty.
        bazelrc: rc file with the credentials of that service; it is in no layer.
        ca_bundle: PEM file for networks that re-sign https; it is in no layer.
        downloads: folder with what Bazel would fetch, for machines off-line.
        cache_id: name of the cache mounts; builds of one name go on where the last one was.
        fresh: use nothing that an earlier build left.
        base: the base image with its digest, where it is known by one; by its name otherwise.
    """

    jobs: int = 0
    memory: int = 0
    remote_cache: str = ""
    remote_executor: str = ""
    remote_instance: str = ""
    bazelrc: str = ""
    ca_bundle: str = ""
    downloads: str = ""
    cache_id: str = "tensorflow"
    fresh: bool = False
    base: str = ""


@dataclass(frozen=True, kw_only=True)
class WheelPlan:
    """What building a wheel takes.

    Attributes:
        lock: every pin.
        digest: content digest of all that decides the result.
        arguments: build arguments by name.
        contexts: named contexts by name.
        secrets: files by secret id.
        fresh: whether caches are passed by.
        origins: identity of each context that replaces a pinned source.
    """

    lock: Lock
    digest: str
    arguments: dict[str, str]
    contexts: dict[str, str]
    secrets: dict[str, str]
    fresh: bool = False
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the result's folder."""
        return digest.shorten(self.digest)

    @property
    def floating(self) -> tuple[str, ...]:
        """What is not pinned: pins of the lock that are in use and empty, and what replaces one by name alone."""
        replaced = {_REPLACED[name] for name in self.origins}
        by_name = [name for name, identity in self.origins.items() if identity.startswith(IMAGE_SCHEME)]
        return (*(name for name in self.lock.floating if name not in replaced), *by_name)

    @property
    def rung(self) -> str:
        """The rung of the reproducibility ladder that the inputs allow."""
        return rank(self.floating)

    def command(
        self, output: Path, *, target: str = TARGET, run: str = "", run_name: Path | None = None
    ) -> tuple[str, ...]:
        """The command that writes the files of a stage into a folder.

        Args:
            output: the folder.
            target: the stage.
            run: a word that nobody has used makes BuildKit run the stage although it has run before.
            run_name: file with the name of the run, under which Bazel's log is kept. It is handed over as a secret,
                because a build argument would be part of BuildKit's cache key.
        """
        argv = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile"))]
        argv += ["--target", target, "--output", _quote("type=local", f"dest={output}")]
        argv += ["--provenance", "false", "--progress", "rawjson"]
        argv += ["--no-cache"] if self.fresh else []
        arguments = self.arguments | ({"RUN_ID": run} if run else {})
        argv += _repeat("--build-arg", (f"{name}={value}" for name, value in arguments.items()))
        argv += _repeat("--build-context", (f"{name}={value}" for name, value in self.contexts.items()))
        secrets = self.secrets | ({"run": str(run_name)} if run_name else {})
        argv += _repeat("--secret", (_quote(f"id={name}", f"src={path}") for name, path in secrets.items()))
        return (*argv, str(project.ROOT))


def plan(
    lock: Lock,
    means: Means,
    *,
    source: Origin | None = None,
    bazel: Origin | None = None,
    bazel_arguments: Sequence[str] = (),
) -> WheelPlan:
    """Plan a wheel.

    Args:
        lock: the pins.
        means: how to build.
        source: replaces the pinned commit of TensorFlow.
        bazel: replaces the pinned release of Bazel.
        bazel_arguments: flags for Bazel; the pinned ones come after them and win.

    Raises:
        UnsupportedError: a pin is empty without which nothing can be fetched.
        UsageError: an option cannot be meant.
    """
    _require_sources(lock, source, bazel)
    _require_means(means)
    _require_words(bazel_arguments)
    origins = {name: item for name, item in (("source", source), ("bazel", bazel)) if item}
    identities = {name: item.identity for name, item in origins.items()}
    contexts = {name: item.context for name, item in origins.items()}
    if means.downloads:
        contexts["downloads"] = str(Path(means.downloads).resolve())
    secrets = {"ca": means.ca_bundle, "bazelrc": means.bazelrc}
    return WheelPlan(
        lock=lock,
        digest=digest.digest_value({"lock": lock.describe(), "origins": identities, "bazel": list(bazel_arguments)}),
        arguments=_list_arguments(lock, means, origins.keys(), bazel_arguments),
        contexts=contexts,
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        fresh=means.fresh,
        origins=identities,
    )


def _list_arguments(
    lock: Lock, means: Means, replaced: Container[str], bazel_arguments: Sequence[str]
) -> dict[str, str]:
    spec, pins = lock.spec, lock.pins
    arguments = {
        "BASE_IMAGE": means.base or pins["base-image"],
        "SOURCE_DATE_EPOCH": pins["source-date-epoch"],
        "APT_SNAPSHOT": pins["apt-snapshot"],
        "LLVM_VERSION": spec["clang"],
        "CUDA_VERSION": spec["cuda"],
        "CUDNN_VERSION": spec["cudnn"],
        "COMPUTE_CAPABILITIES": spec["capabilities"],
        "PYTHON_VERSION": spec["python"],
        "TENSORFLOW_VERSION": spec["tensorflow"],
        "TENSORFLOW_COMMIT": "" if "source" in replaced else pins["tensorflow-commit"],
        "BAZEL_VERSION": spec["bazel"],
        "BAZEL_SHA256": "" if "bazel" in replaced else pins["bazel-sha256"],
        "BAZEL_JOBS": str(means.jobs or ""),
        "BAZEL_MEMORY": str(means.memory or ""),
        "BAZEL_ARGUMENTS": " ".join(bazel_arguments),
        "REMOTE_CACHE": means.remote_cache,
        "REMOTE_EXECUTOR": means.remote_executor,
        "REMOTE_INSTANCE_NAME": means.remote_instance,
        "CACHE_ID": means.cache_id,
    }
    # An empty argument would replace the Dockerfile's default by nothing.
    return {name: value for name, value in arguments.items() if value}


def _require_sources(lock: Lock, source: Origin | None, bazel: Origin | None) -> None:
    if source is None and not lock.pins["tensorflow-commit"]:
        raise UnsupportedError(
            f"the commit of TensorFlow {lock.spec['tensorflow']} is not known here",
            remedy="run `toolkit lock` with the network at hand, or give --source URL#COMMIT",
        )
    if bazel is None and not lock.pins["bazel-sha256"]:
        raise UnsupportedError(
            f"the hash of Bazel {lock.spec['bazel']} is not known here",
            remedy="give a Bazel that you trust: --bazel DIR",
        )


def _require_means(means: Means) -> None:
    if not _CACHE_NAME.fullmatch(means.cache_id):
        raise UsageError(f"--cache: not a name: {means.cache_id!r}", remedy="letters, digits, dots, dashes")
    for option, url, schemes in (
        ("--remote-cache", means.remote_cache, _CACHES),
        ("--remote-executor", means.remote_executor, _EXECUTORS),
    ):
        if url and not url.startswith(schemes):
            raise UsageError(f"{option} is not the URL of a service: {url!r}", remedy=f"one of {', '.join(schemes)}…")
        if "@" in url:
            # A build argument is kept in the image's history and in the log.
            raise UsageError(f"{option} has credentials in it", remedy="put them into a bazelrc file: --bazelrc FILE")
    if means.remote_instance and not (means.remote_executor or means.remote_cache.startswith(_EXECUTORS)):
        raise UsageError(
            "--remote-instance-name is given without a service that has instances",
            remedy="give --remote-executor too, or a --remote-cache that begins with grpc:// or grpcs://",
        )
    if re.search(r"\s", means.remote_instance):
        raise UsageError(f"--remote-instance-name is not a name: {means.remote_instance!r}", remedy="without blanks")
    for option, path in (("--bazelrc", means.bazelrc), ("--ca-bundle", means.ca_bundle)):
        if path and not Path(path).is_file():
            raise UsageError(f"{option}: there is no file {path}")
    if means.downloads and not Path(means.downloads).is_dir():
        raise UsageError(f"--downloads: there is no folder {means.downloads}")
    if means.downloads and not any((Path(means.downloads) / name).is_dir() for name in _DOWNLOADS):
        raise UsageError(
            f"--downloads: {means.downloads} has neither of {' and '.join(_DOWNLOADS)}",
            why="everything would be fetched as if it were not there",
            remedy="put archives into distdir by name, or content_addressable of Bazel's repository cache into "
            "repository_cache",
        )


def _require_words(arguments: Sequence[str]) -> None:
    for argument in arguments:
        if _CREDENTIALS.search(argument):
            name = argument.partition("=")[0]
            raise UsageError(
                f"--bazel-argument {name} has credentials in it", remedy="put it into a bazelrc file: --bazelrc FILE"
            )
        if not argument.startswith("--") or len(argument.split()) != 1:
            raise UsageError(
                f"not a flag for Bazel: {argument!r}", remedy="one word that begins with --; repeat the option for more"
            )


def _quote(*fields: str) -> str:
    """Fields as docker's options read them: one line of comma-separated values."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _repeat(option: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (option, value)]
