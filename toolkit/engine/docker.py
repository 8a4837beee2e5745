"""Implements the container engine: ``docker buildx`` builds images, the docker SDK does the rest."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TextIO

import docker
import requests
import urllib3
from docker.errors import ImageNotFound, NotFound

from toolkit.base import digest, manifest, naming, ownership, processes, project, seals
from toolkit.base.console import Console
from toolkit.base.errors import BuildError, EngineError, PreflightError, ToolkitError, UsageError
from toolkit.base.steps import repeat
from toolkit.engine import (
    Commands,
    Environment,
    EnvironmentPlan,
    EnvironmentSpec,
    Job,
    Listener,
    Network,
    Platform,
    buildx,
    bundle,
    container,
    custody,
    deadline,
)
from toolkit.engine.bundle import Bundle
from toolkit.engine.client import (
    PODMAN_BUILDS,
    BaseImage,
    find_distribution,
    find_users,
    is_podman,
    read_files,
    require_buildx,
    translating_errors,
)
from toolkit.engine.user import SAME, Users, choose, make_caches
from toolkit.versions.table import load_table
from train.system import signals

_ASK_PLATFORM = "import platform, sys; print(platform.libc_ver()[1], '%d.%d' % sys.version_info[:2])"

_KERNELS = "/opt/toolkit/train/native/kernels.so"
"""The library of native kernels, in images of the training job."""

_CAUSE = re.compile(rf"^ +(?:error|ERROR|cause): |{processes.OTHER_BYTES.pattern}")


def plan_image(
    spec: EnvironmentSpec,
    base: BaseImage,
    *,
    state: Path,
    target: str = "train",
    ca_bundle: str = "",
    tag: str = "",
    distribution: str = "",
    carried: Bundle | None = None,
) -> EnvironmentPlan:
    """Plan an image.

    ``ca_bundle``: PEM file, a secret. ``distribution``: the base's codename, or empty. ``carried``: what a build
    without a network takes from a folder.
    """
    table = load_table()
    arguments = {
        "BASE_IMAGE": base.reference,
        "REQUIREMENTS": spec.requirements,
        "SOURCE_DATE_EPOCH": str(table.default.source_date_epoch),
    }
    packaged = table.bases.get(distribution, table.default_base).gcc
    if packaged != table.default_base.gcc:
        arguments["GCC_VERSION"] = packaged
    inputs = {"base": base.identity, "files": digest.digest_paths(project.ROOT, _list_inputs(spec, target))}
    inputs |= spec.inputs
    kept = {name: inputs.get(name) for name in ("base", "files", "wheel")}
    content = digest.digest_value({"target": target, "arguments": arguments, **kept})
    labels = {
        naming.OWNER_LABEL: "toolkit",
        naming.PLAN_LABEL: content,
        **{f"{naming.LABEL_PREFIX}.{name}": version for name, version in spec.named().items()},
        naming.LOCK_LABEL: inputs["requirements"],
        "org.opencontainers.image.base.name": base.reference,
    }
    labels |= {naming.WHEEL_LABEL: inputs["wheel"]} if spec.wheel else {}
    labels |= {naming.INSTRUCTIONS_LABEL: " ".join(spec.instructions)} if spec.instructions else {}
    name = tag or naming.name_image(target, spec.requirements, content)
    argv: list[str] = ["docker", "buildx", "build", "--file", str(project.locate("docker/Dockerfile"))]
    argv += ["--target", target, "--tag", name, "--load", "--provenance", "false", "--progress", "rawjson"]
    argv += repeat("--build-arg", (f"{key}={value}" for key, value in arguments.items()))
    argv += repeat("--label", (f"{key}={value}" for key, value in labels.items()))
    argv += ["--build-context", f"wheel={spec.wheel.resolve().parent}"] if spec.wheel else []
    argv += ["--secret", f"id=ca,src={ca_bundle}"] if ca_bundle else []
    if carried:
        contexts = {**carried.contexts, "downloads": str(carried.folder.resolve())}
        argv += ["--network", "none", *repeat("--build-context", (f"{key}={item}" for key, item in contexts.items()))]
    return EnvironmentPlan(
        spec=spec,
        kind="image",
        reference=name,
        digest=content,
        folder=state / f"image-{target}-{spec.requirements}-{digest.shorten(content)}",
        inputs=inputs,
        commands=((*argv, str(project.ROOT)),),
    )


class DockerEngine:
    name = "docker"

    def __init__(
        self,
        client: docker.DockerClient,
        base: BaseImage,
        *,
        state: Path,
        ca_bundle: str = "",
        target: str = "train",
        tag: str = "",
        carried: Bundle | None = None,
    ) -> None:
        self._client = client
        self._base = base
        self._state = state.resolve()
        self._ca_bundle = ca_bundle
        self._target = target
        self._tag = tag
        self._carried = carried

    @cached_property
    def _users(self) -> Users:
        return find_users(self._client)

    @property
    def _distribution(self) -> str:
        return (
            self._carried.base["distribution"]
            if self._carried
            else find_distribution(self._client, self._base, self._state)
        )

    def has_gpu(self) -> bool:
        with translating_errors("asking for its runtimes"):
            return "nvidia" in self._client.info().get("Runtimes", {})

    def find_platform(self, *, fetch: bool) -> Platform:
        if self._carried and fetch:
            bundle.load(self._carried, self._client, self._state)
        image = self._find(self._carried.names["base"] if self._carried else self._base.reference)
        if image is None and fetch and not self._carried:
            with translating_errors(f"pulling {self._base.reference}"):
                image = self._client.images.pull(self._base.reference)
        if image is None:
            return Platform()
        lines: list[str] = []
        job = Job(title="platform", argv=("-c", _ASK_PLATFORM), deadline=60)
        labels = ownership.label(self._state)
        run(self._client, job, image=str(image.id), users=self._users, listener=lines.append, labels=labels)
        glibc, python = [*"".join(lines).split(), "", ""][:2]
        return Platform(glibc=glibc, python=python)

    def plan(self, spec: EnvironmentSpec) -> EnvironmentPlan:
        return plan_image(
            spec,
            self._base,
            state=self._state,
            target=self._target,
            ca_bundle=self._ca_bundle,
            tag=self._tag,
            distribution=self._distribution,
            carried=self._carried,
        )

    def find(self, plan: EnvironmentPlan) -> Environment | None:
        image = self._find(plan.reference)
        return _describe(plan, image, reused=True) if _is_own(plan, image) else None

    def prepare(self, plan: EnvironmentPlan, console: Console) -> Environment:
        image = self._find(plan.reference)
        reused = not plan.force and _is_own(plan, image)
        if not reused:
            require_buildx()
            seals.make_key()  # before minutes are spent
            if self._carried:
                bundle.load(self._carried, self._client, self._state)
            log = plan.folder / "build.log"
            try:
                for command in plan.commands:
                    buildx.build(command, log=log, console=console)
            except BuildError as error:
                raise _explain(error, log, podman=is_podman(self._client)) from error
            image = self._find(plan.reference)
        if image is None:
            raise EngineError(
                f"buildx succeeded, but the engine has no image {plan.reference}",
                why="most often the docker client and this program talk to different engines",
                remedy="set DOCKER_HOST to the right engine",
            )
        if not reused:
            self._record(plan, image)
        return _describe(plan, image, reused=reused)

    def adopt(self, reference: str) -> Environment:
        """Return any image on this machine as an environment. Raises UsageError if there is no image of that name."""
        image = self._find(reference) if reference.strip() and " " not in reference else None
        if image is None:
            raise UsageError(
                f"there is no image {reference!r} on this machine",
                remedy=f"`docker pull {reference}`, or `toolkit build-image` makes one",
            )
        folder = self._state / f"image-adopted-{digest.shorten(str(image.id))}"
        return Environment(
            kind="image",
            digest=str(image.id),
            reference=reference,
            folder=folder,
            reused=True,
            instructions=tuple(image.labels.get(naming.INSTRUCTIONS_LABEL, "").split()),
        )

    def commands(self, reference: str, job: Job) -> Commands:
        return container.list_commands(job, image=reference, users=self._users, labels=ownership.label(self._state))

    def plan_network(self) -> Network:
        return container.plan_network(ownership.label(self._state))

    @contextmanager
    def join(self, network: Network) -> Iterator[None]:
        labels = {**self._claim(), naming.JOB_LABEL: "network"}

        def remove() -> None:
            with translating_errors(f"removing the network {network.name}"), suppress(NotFound):
                self._client.api.remove_network(network.name)

        with _finally(remove):
            with translating_errors("making a network"), signals.deferring():
                self._client.networks.create(network.name, labels=labels)
            yield

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        return run(
            self._client,
            job,
            image=environment.digest,
            users=self._users,
            listener=listener,
            labels=self._claim(),
        )

    def _claim(self) -> dict[str, str]:
        with suppress(PreflightError):  # of a state folder that may only be read, the job is nobody's
            ownership.claim(self._state)
        return ownership.label(self._state)

    def _find(self, reference: str) -> Any | None:
        with translating_errors("looking for an image"):
            try:
                return self._client.images.get(reference)
            except ImageNotFound:
                return None

    def _record(self, plan: EnvironmentPlan, image: Any) -> None:
        ownership.claim(self._state)
        spec = plan.spec
        parent = (
            {"kind": "wheel", "name": spec.wheel.name, "digest": plan.inputs["wheel"]}
            if spec.wheel
            else {"kind": "lock", "name": spec.locked.name, "digest": plan.inputs["requirements"]}
        )
        facts = {
            "tag": plan.reference,
            "plan": plan.digest,
            "platform": f"{image.attrs['Os']}/{image.attrs['Architecture']}",
            "base": {"name": self._base.reference, "digest": self._base.identity},
            "bytes": image.attrs["Size"],
            "labels": image.labels,
            "engine": "docker",
        }
        if self._target == "train":
            (kernels,) = read_files(self._client, str(image.id), _KERNELS, self._state).values()
            facts["kernels"] = digest.digest_bytes(kernels)
        manifest.write(plan.folder, manifest.Manifest(kind="image", digest=str(image.id), parent=parent, facts=facts))
        custody.seal(plan.folder, str(image.id))


def _is_own(plan: EnvironmentPlan, image: Any | None) -> bool:
    """Return whether this user has made an image by this plan. `docker load` brings any name and any label along."""
    if image is None or image.labels.get(naming.PLAN_LABEL) != plan.digest:
        return False
    return custody.holds(plan.folder, str(image.id))


def run(
    client: docker.DockerClient,
    job: Job,
    *,
    image: str,
    users: Users = SAME,
    listener: Listener | None = None,
    labels: Mapping[str, str] = container.UNOWNED,
) -> int:
    user = choose(job, users)
    make_caches(job, user)
    # A terminal has only one stream: all output goes to the user, and none to the listener.
    terminal = job.terminal and sys.stderr.isatty()
    described = container.describe(job, image=image, user=user, terminal=terminal, labels=labels)
    following: list[Future[None]] = []
    with (
        ThreadPoolExecutor(1) as pool,
        translating_errors(f"running {job.title}"),
        # By its name, which is known even if the engine's answer was lost.
        _finally(partial(_remove, client, described.name)),
    ):
        with signals.deferring():
            created = client.containers.create(**described.to_sdk())
        stream: Any = created.attach(stream=True, logs=True, demux=not terminal)  # type: ignore[call-overload]
        with (
            _explaining_loss(job, described.name),
            deadline(job, lambda: client.api.kill(described.name)),
        ):
            try:
                with signals.deferring():
                    created.start()
                    # By another thread, because an interrupt would lose what the job says at its end.
                    following.append(pool.submit(_follow, stream, terminal=terminal, listener=listener))
                return _wait(created, following, job.grace)
            except KeyboardInterrupt:
                _stop(client, described.name, job.grace)
                if _wait(created, following, job.grace) == signals.INTERRUPTED:
                    signals.mark_told()  # the job itself has said so on standard error
                raise


def _wait(created: Any, following: Collection[Future[None]], grace: float) -> int:
    """Return the exit code of a job when all that it said was followed."""
    while wait(following, processes.LISTEN_SECONDS).not_done:
        pass
    for future in following:
        future.result()
    return int(created.wait(timeout=grace)["StatusCode"])


@contextmanager
def _finally(remove: Callable[[], object]) -> Iterator[None]:
    """Remove something when the block has ended. An engine that is gone cannot: then only its loss is reported."""
    try:
        yield
    except EngineError:
        with suppress(Exception):
            remove()
        raise
    except BaseException:
        remove()
        raise
    remove()


@contextmanager
def _explaining_loss(job: Job, name: str) -> Iterator[None]:
    """Turn a lost connection to the engine into an EngineError that says what became of the running job."""
    try:
        yield
    except (requests.ConnectionError, urllib3.exceptions.ProtocolError, ConnectionError) as error:
        kept = f"; {job.kept}" if job.kept else ""
        raise EngineError(
            f"the container engine went away while the job {job.title} ran, and cut it off{kept}",
            why=str(error)[:300],
            remedy=f"start the engine, and run the same command again; `toolkit clean` removes the container {name} if "
            "it is left",
        ) from error


def _stop(client: docker.DockerClient, name: str, grace: float) -> None:
    with suppress(NotFound):
        client.api.stop(name, timeout=int(grace))


def _follow(stream: Any, *, terminal: bool, listener: Listener | None) -> None:
    rest = b""
    for chunk in stream:
        out, err = (None, chunk) if terminal else chunk
        if out and listener:
            *lines, rest = (rest + out).split(b"\n")
            for line in lines:
                listener(line.decode(errors="replace"))
        elif out:
            _write(sys.stdout, out)
        if err:
            _write(sys.stderr, err)
    if rest and listener:
        listener(rest.decode(errors="replace"))


def _write(target: TextIO, data: bytes) -> None:
    target.buffer.write(data)
    target.flush()


def _remove(client: docker.DockerClient, name: str) -> None:
    try:
        client.api.remove_container(name, force=True, v=True)
    except NotFound:
        return
    except Exception as error:
        raise EngineError(
            f"the container {name} could not be removed",
            why=str(error)[:300],
            remedy="`toolkit clean` removes it once the engine answers again",
        ) from error


def _describe(plan: EnvironmentPlan, image: Any, *, reused: bool) -> Environment:
    return Environment(
        kind=plan.kind,
        digest=str(image.id),
        reference=plan.reference,
        folder=plan.folder,
        reused=reused,
        instructions=plan.spec.instructions,
    )


def _list_inputs(spec: EnvironmentSpec, target: str) -> list[Path]:
    inputs = [project.locate("docker/Dockerfile"), project.locate("docker/scripts"), spec.locked]
    return [*inputs, project.locate("train")] if target == "train" else inputs


def _explain(error: BuildError, log: Path, *, podman: bool = False) -> ToolkitError:
    """Return the failure with the installer's error lines. BuildKit's own lines only quote the Dockerfile."""
    text = log.read_text(errors="replace")
    causes = [line.strip() for line in text.splitlines() if _CAUSE.search(line)]
    why = "\n       ".join(causes) or error.why
    if any(processes.OTHER_BYTES.search(line) for line in causes):
        return processes.describe_wrong_package(why)
    remedy = PODMAN_BUILDS if podman and not causes else error.remedy
    return BuildError(error.what, why=why, remedy=remedy)
