"""Plans the build of a wheel from source: its pins, the digest that names the wheel, and the one docker command."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from toolkit.base import digest, project
from toolkit.base.errors import PreflightError, ToolkitError, UnsupportedError, UsageError
from toolkit.base.privacy import find_in_home, leave_out_home
from toolkit.base.steps import Step, quote_fields, repeat
from toolkit.versions import bounds, lock
from toolkit.versions.lock import Lock
from toolkit.versions.rules import BuildVersions
from toolkit.versions.set import FIRST_PLATFORM
from toolkit.versions.settings import Settings, require_own_platform
from toolkit.versions.table import Table, load_table
from toolkit.wheel import cpu_targets
from toolkit.wheel.build_inputs import (
    IMAGE_SCHEME,
    BuildContext,
    BuildInputs,
    EngineImages,
    choose_wheel_versions,
    collect_pins,
    find_bazel,
    find_bundle,
    find_images,
    find_source,
    require_downloads,
    require_version,
)
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.wheel_plan import WheelPlan

if TYPE_CHECKING:
    from toolkit.engine.bundle import Bundle

TARGET: Final = "wheel-from-source"
LOG_TARGET: Final = "bazel-log"
_REPLACED: Final = {"source": "tensorflow-commit", "bazel": "bazel-sha256"}
"""The pin that each replacement (--source, --bazel) makes unnecessary, by the name of its context."""


@dataclass(frozen=True, kw_only=True)
class BuildPlan(WheelPlan):
    KIND: ClassVar[str] = "wheel"
    TITLE: ClassVar[str] = "the plan of a wheel"
    REMEDY: ClassVar[str] = "build the wheel again"
    BUILD_TYPE: ClassVar[str] = "urn:x-tensorflow-toolkit:build-wheel:v1"

    arguments: dict[str, str]  # build arguments by name
    contexts: dict[str, str]  # location of each named context
    secrets: dict[str, str]  # files by secret id
    fresh: bool = False  # whether the build uses no caches
    origins: dict[str, str] = field(default_factory=dict)  # identity of each context that replaces a pinned source
    exact: bool = False  # whether the extra and-cuda requires the very versions of the build
    # contexts that replace all stages that need a network; they depend on the machine, so they are not recorded
    stages: Mapping[str, str] = field(default_factory=dict)

    @property
    def floating(self) -> tuple[str, ...]:
        """Names of unpinned inputs: empty pins, and replacement images that are known only by name."""
        replaced = {_REPLACED[name] for name in self.origins}
        by_name = [name for name, identity in self.origins.items() if identity.startswith(IMAGE_SCHEME)]
        return (*(name for name in self.lock.floating if name not in replaced), *by_name)

    def command(self, output: Path, *, target: str = TARGET, run_name: Path | None = None) -> tuple[str, ...]:
        """Return the command of a stage, which writes its files to ``output``.

        ``run_name``: a file with the name of this run. It is a secret, because secrets are no part of cache keys.
        """
        secrets = self.secrets | ({"run": str(run_name)} if run_name else {})
        return self._compose(target, ["--output", quote_fields("type=local", f"dest={output}")], secrets)

    def image_command(self, target: str, tag: str, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the command of a stage that becomes an image of the engine."""
        result = ["--tag", tag, "--load", *repeat("--label", (f"{name}={value}" for name, value in labels.items()))]
        return self._compose(target, result, self.secrets)

    def _compose(self, target: str, result: Sequence[str], secrets: Mapping[str, str]) -> tuple[str, ...]:
        argv = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile"))]
        argv += ["--target", target, *result, "--provenance", "false", "--progress", "rawjson"]
        # Bazel for this platform does not start on an engine of another machine.
        argv += ["--platform", self.platform] if self.platform != FIRST_PLATFORM else []
        argv += ["--no-cache"] if self.fresh else []
        argv += repeat("--build-arg", (f"{name}={value}" for name, value in self.arguments.items()))
        contexts = self.contexts
        if self.stages:
            # A remote cache or executor may be reachable even where there is no internet.
            argv += [] if {"REMOTE_CACHE", "REMOTE_EXECUTOR"} & self.arguments.keys() else ["--network", "none"]
            # A stage already contains Bazel. The plan keeps the place of its context only for the record.
            contexts = {name: value for name, value in contexts.items() if name != "bazel"} | {**self.stages}
        argv += repeat("--build-context", (f"{name}={value}" for name, value in contexts.items()))
        argv += repeat("--secret", (quote_fields(f"id={name}", f"src={path}") for name, path in secrets.items()))
        return (*argv, str(project.ROOT))

    def step(self, dist: Path) -> Step:
        """Return the build as a step.

        The command of the step writes to ``dist`` itself. A real build writes to a staging folder first, and then
        renames it.
        """
        output = dist / self.name
        return Step(
            title="wheel",
            commands=(self.command(output),),
            inputs={"lock": self.lock.digest, **self.origins},
            outputs=(str(output),),
        )

    def describe(self) -> dict[str, Any]:
        return {
            "arguments": dict(self.arguments),
            "contexts": self.describe_contexts(),
            "origins": dict(self.origins),
            **({"exact": True} if self.exact else {}),
        }

    def describe_contexts(self) -> dict[str, str]:
        return {name: leave_out_home(location) for name, location in self.contexts.items()}

    @classmethod
    def restore(cls, lock: Lock, value: Mapping[str, Any]) -> Self:
        return cls(
            lock=lock,
            digest=str(value["digest"]),
            arguments=dict(value["arguments"]),
            contexts={name: find_in_home(location) for name, location in value["contexts"].items()},
            secrets={},
            origins=dict(value["origins"]),
            exact=bool(value.get("exact", False)),
        )


@dataclass(frozen=True, kw_only=True)
class PlannedWheel:
    options: BuildOptions
    plan: BuildPlan
    spec: BuildVersions  # the versions and the warnings about them
    images: EngineImages  # the images that it starts from
    bundle: "Bundle | None" = None  # the images in the folder of --downloads
    obstacle: ToolkitError | None = None  # why nothing can be built on this machine

    def prepare(self, state: Path) -> None:
        """Load the images of --downloads into the engine. Raises the error that keeps this machine from building."""
        if self.obstacle:
            raise self.obstacle
        if self.bundle:
            from toolkit.engine import bundle
            from toolkit.engine.client import connect

            bundle.load(self.bundle, connect(), state)


def plan_wheel(settings: Settings, options: BuildOptions, *, lock_file: Path) -> PlannedWheel:
    """Plan a wheel.

    An engine that does not answer, or has no base image, is no error yet: :meth:`PlannedWheel.prepare` raises it.
    Raises UnsupportedError or UsageError if the wheel cannot be built at all, and CheckError if the lock differs from
    the present pins.
    """
    table, bundle = load_table(), find_bundle(settings)
    # The versions are checked before the engine is asked, unless the engine alone knows the distribution of the base.
    distribution = _name_distribution(settings, table, bundle)
    images = None if distribution else find_images(settings, bazel=options.bazel, bundle=bundle)
    spec = choose_wheel_versions(settings, options.compute_capability, images.distribution if images else distribution)
    locked = lock.read(lock_file)
    source = find_source(options.source) if options.source else None
    if source:
        require_version(options.source, tensorflow=spec.tensorflow, bazel=spec.bazel)
    images = images or find_images(settings, bazel=options.bazel, bundle=bundle)
    bazel = _choose_bazel(options.bazel, images, bundle)
    pins = _choose_pins(spec, table, images, locked, options.apt_snapshot)
    if bundle:
        _require_fit(bundle, pins)
    inputs = BuildInputs(
        source=source,
        bazel=bazel,
        base=images.pinned,
        stages=bundle.contexts if bundle else {},
        downloads=settings.downloads,
        ca_bundle=settings.ca_bundle,
    )
    return PlannedWheel(
        options=options,
        plan=plan(pins, options, inputs, pinned_flags=spec.bazel_arguments),
        spec=spec,
        images=images,
        bundle=bundle,
        obstacle=_find_obstacle(settings) or images.trouble,
    )


def plan(
    lock: Lock, options: BuildOptions, inputs: BuildInputs | None = None, *, pinned_flags: Sequence[str] = ()
) -> BuildPlan:
    """Plan a wheel with these pins.

    ``pinned_flags``: flags for Bazel that the versions need. Later flags win over them. Raises UnsupportedError if
    TensorFlow's commit or Bazel's hash is unknown, and UsageError if an option is invalid.
    """
    inputs = inputs or BuildInputs()
    _require_sources(lock, inputs)
    options.check()
    if options.prove_kernels and not lock.versions.cuda:
        raise UsageError("--prove-kernels compiles GPU kernels, and --cuda none builds none", remedy="leave it out")
    if options.exact and not lock.versions.cuda:
        raise UsageError(
            "--exact is for the versions of CUDA and cuDNN, and --cuda none has none", remedy="leave it out"
        )
    if options.prove_kernels and inputs.stages:
        raise UsageError(
            "--prove-kernels needs a network",
            why="it compiles with headers of the published wheel, and the folder of --downloads has none",
            remedy="prove the kernels where there is a network, and leave the option out here",
        )
    require_downloads(inputs.downloads)
    flags = (
        *pinned_flags,
        *cpu_targets.list_flags(options.cpu_target, lock.versions.platform),
        *options.bazel_argument,
    )
    origins = {name: item for name, item in (("source", inputs.source), ("bazel", inputs.bazel)) if item}
    identities = {name: item.identity for name, item in origins.items()}
    contexts = {name: item.location for name, item in origins.items()}
    if inputs.downloads:
        contexts["downloads"] = str(Path(inputs.downloads).resolve())
    secrets = {"ca": inputs.ca_bundle, "bazelrc": options.bazelrc}
    decisive: dict[str, Any] = {"lock": lock.describe(), "origins": identities, "bazel": list(flags)}
    if options.exact:
        bounds.list_exact(load_table(), lock.versions)
        decisive["exact"] = True
    return BuildPlan(
        lock=lock,
        digest=digest.digest_value(decisive),
        arguments=_list_arguments(lock, options, inputs.base, flags, replaced=origins),
        contexts=contexts,
        secrets={name: str(Path(path).resolve()) for name, path in secrets.items() if path},
        origins=identities,
        exact=options.exact,
        stages=inputs.stages,
    )


def _list_arguments(
    lock: Lock, options: BuildOptions, base: str, flags: Sequence[str], *, replaced: Container[str]
) -> dict[str, str]:
    spec, pins = lock.spec, lock.pins
    arguments = {
        "BASE_IMAGE": base or pins["base-image"],
        "SOURCE_DATE_EPOCH": pins["source-date-epoch"],
        "APT_SNAPSHOT": pins["apt-snapshot"],
        "LLVM_VERSION": spec["clang"],
        "GCC_VERSION": spec["gcc"],
        "DEVICE": "" if spec.get("cuda") else "cpu",
        **lock.versions.libraries.arguments(),
        "COMPUTE_CAPABILITIES": spec.get("capabilities", ""),
        "PYTHON_VERSION": spec["python"],
        "TENSORFLOW_VERSION": spec["tensorflow"],
        "TENSORFLOW_COMMIT": "" if "source" in replaced else pins["tensorflow-commit"],
        "BAZEL_VERSION": spec["bazel"],
        "BAZEL_MACHINE": load_table().platform(lock.versions.platform).bazel,
        "BAZEL_SHA256": "" if "bazel" in replaced else pins["bazel-sha256"],
        "BAZEL_ARGUMENTS": " ".join(flags),
        "GLIBC": spec.get("glibc", ""),
        "CACHE_ID": name_cache(options.cache, spec),
        **options.list_arguments(),
    }
    # An empty argument would override the Dockerfile's default.
    return {name: value for name, value in arguments.items() if value}


def name_cache(name: str, spec: Mapping[str, str]) -> str:
    """Return the name of the cache mounts.

    Each C library has caches of its own, because Bazel's actions do not have it among their inputs.
    """
    return f"{name}-glibc-{spec['glibc']}" if spec.get("glibc") else name


def _require_sources(lock: Lock, inputs: BuildInputs) -> None:
    if inputs.source is None and not lock.pins["tensorflow-commit"]:
        raise UnsupportedError(
            f"the commit of TensorFlow {lock.spec['tensorflow']} is not known here",
            remedy="run `toolkit lock` with network access, or give --source URL#COMMIT",
        )
    if inputs.bazel is None and not lock.pins["bazel-sha256"]:
        raise UnsupportedError(
            f"the hash of Bazel {lock.spec['bazel']} is not known here",
            remedy="give a Bazel that you trust: --bazel DIR",
        )


def _name_distribution(settings: Settings, table: Table, bundle: "Bundle | None") -> str:
    """Return the distribution of the base image if a bundle or the image's name tells it, else an empty text."""
    if bundle:
        return bundle.base["distribution"]
    named = table.find_base(settings.base_image)
    return named.codename if named else ""


def _find_obstacle(settings: Settings) -> ToolkitError | None:
    try:
        require_own_platform(settings, "a wheel is built")
    except PreflightError as error:
        return error
    return None


def _choose_bazel(text: str, images: EngineImages, bundle: "Bundle | None") -> BuildContext | None:
    if bundle is None:
        return find_bazel(text, images.bazel_digest) if text else None
    if text:
        raise UsageError("--bazel is given, and the folder of --downloads has a Bazel", remedy="leave out --bazel")
    return BuildContext(**bundle.bazel) if bundle.bazel else None


def _choose_pins(
    spec: BuildVersions, table: Table, images: EngineImages, locked: Lock | None, apt_snapshot: str
) -> Lock:
    """Return the present pins, completed by the lock where they are unknown.

    Raises CheckError if a pin differs from the lock, and UnsupportedError if a day of Debian's archive is wanted that
    the base image cannot read.
    """
    present = collect_pins(spec, table, images, locked, apt_snapshot)
    if present.pins["apt-snapshot"] and not table.bases[spec.base].snapshots:
        raise UnsupportedError(
            f"the packages of {table.bases[spec.base].name} cannot be of a given day",
            why="its apt is older than 3.0, and the snapshot archive needs 3.0 or newer",
            remedy=f"leave out --apt-snapshot, or --base-image {table.default.base_image}",
        )
    if locked is None:
        return present
    lock.require_fit(locked, present)
    return replace(present, pins={name: value or locked.pins.get(name, "") for name, value in present.pins.items()})


def _require_fit(bundle: "Bundle", pins: Lock) -> None:
    """Raise UsageError if the images of a folder were collected for another build."""
    collected = Lock(spec=bundle.lock["spec"], pins=bundle.lock["pins"])
    if changes := lock.compare(collected, pins):
        raise UsageError(
            f"{bundle.folder} was collected for another build",
            why="; ".join(changes),
            remedy="give the versions that it was collected for, or collect again",
        )
