"""A container engine: images by ``docker buildx``, everything else by the docker SDK."""

import os
import re
from pathlib import Path
from typing import Any

import docker
from docker.errors import ImageNotFound

from toolkit import digest, image, manifest, naming, project
from toolkit.console import Console
from toolkit.engine import buildx, container
from toolkit.engine.base import Base
from toolkit.engine.client import require_buildx, translating_errors
from toolkit.engine.job import Job, Listener, Mount
from toolkit.engine.protocol import Environment, EnvironmentPlan, Platform
from toolkit.errors import BuildError, EngineError, IntegrityError, ToolkitError, UsageError
from toolkit.image import ImagePlan
from toolkit.recipe import Recipe

_OTHER_BYTES = re.compile(r"Hash mismatch|DO NOT MATCH THE HASHES")
"""What uv, and pip, which fetches uv, say of a package that is not the locked one."""

_ASK_PLATFORM = "import platform, sys; print(platform.libc_ver()[1], '%d.%d' % sys.version_info[:2])"

_CAUSE = re.compile(rf"^ +(?:error|ERROR|cause): |{_OTHER_BYTES.pattern}")


class DockerEngine:
    """Runs jobs in containers of images that it builds.

    Args:
        client: a connection to the engine.
        base: the image to build on.
        state: folder of logs and manifests.
        ca_bundle: PEM file for downloads during the build, or empty.
        target: stage of the Dockerfile to build.
        tag: name for the image; by default one made of its plan's digest.
    """

    name = "docker"

    def __init__(
        self,
        client: docker.DockerClient,
        base: Base,
        *,
        state: Path,
        ca_bundle: str = "",
        target: str = "train",
        tag: str = "",
    ) -> None:
        self._client = client
        self._base = base
        self._state = state.resolve()
        self._ca_bundle = ca_bundle
        self._target = target
        self._tag = tag

    def has_gpu(self) -> bool:
        """See :class:`toolkit.engine.protocol.Engine`."""
        with translating_errors("asking for its runtimes"):
            return "nvidia" in self._client.info().get("Runtimes", {})

    def find_platform(self, *, fetch: bool) -> Platform:
        """See :class:`toolkit.engine.protocol.Engine`. The base tells; the build that follows needs it anyway."""
        found = self._find(self._base.reference)
        if found is None and fetch:
            with translating_errors(f"pulling {self._base.reference}"):
                found = self._client.images.pull(self._base.reference)
        if found is None:
            return Platform()
        heard: list[str] = []
        container.run(
            self._client,
            Job(title="platform", argv=("-c", _ASK_PLATFORM), deadline=60),
            image=str(found.id),
            listener=heard.append,
        )
        glibc, python = [*"".join(heard).split(), "", ""][:2]
        return Platform(glibc=glibc, python=python)

    def plan(self, recipe: Recipe) -> EnvironmentPlan:
        """See :class:`toolkit.engine.protocol.Engine`."""
        plan = self._plan(recipe)
        return EnvironmentPlan(reference=plan.tag, commands=(plan.argv,))

    def prepare(self, recipe: Recipe, console: Console) -> Environment:
        """See :class:`toolkit.engine.protocol.Engine`. An image with the plan's digest on its label is up to date."""
        plan = self._plan(recipe)
        folder = self._state / f"image-{self._target}-{recipe.variant}-{digest.shorten(plan.digest)}"
        found = self._find(plan.tag)
        reused = found is not None and found.labels.get(naming.PLAN_LABEL) == plan.digest
        if not reused:
            require_buildx()
            try:
                buildx.build(plan.argv, log=folder / "build.log", console=console)
            except BuildError as error:
                raise _explain(error, folder / "build.log") from error
            found = self._find(plan.tag)
        if found is None:
            raise EngineError(
                f"buildx ended well, but the engine has no image {plan.tag}",
                why="most often the docker client and this program talk to different engines",
                remedy="set DOCKER_HOST to the engine that is meant",
            )
        if not reused or manifest.read(folder) is None:
            self._record(recipe, plan, found, folder)
        return Environment(kind="image", digest=str(found.id), reference=plan.tag, folder=folder, reused=reused)

    def adopt(self, reference: str) -> Environment:
        """An image that is here already, ours or not, as an environment.

        Raises:
            UsageError: no image of that name is here.
        """
        found = self._find(reference) if reference.strip() and " " not in reference else None
        if found is None:
            raise UsageError(
                f"there is no image {reference!r} on this machine",
                remedy=f"`docker pull {reference}`, or `toolkit build-image` makes one",
            )
        folder = self._state / f"image-adopted-{digest.shorten(str(found.id))}"
        return Environment(kind="image", digest=str(found.id), reference=reference, folder=folder, reused=True)

    def commands(self, environment: str, job: Job) -> list[list[str]]:
        """See :class:`toolkit.engine.protocol.Engine`. The engine refuses to mount a folder that is missing."""
        asked = container.describe(job, image=environment, terminal=False)
        argv = ["docker", "run", "--rm", "--read-only", "--init", "--user", asked["user"], "--cap-drop", "ALL"]
        argv += ["--security-opt", "no-new-privileges", "--network", asked["network_mode"]]
        argv += ["--pids-limit", str(asked["pids_limit"]), "--shm-size", asked["shm_size"]]
        argv += [f"--tmpfs={path}:{options}" for path, options in asked["tmpfs"].items()]
        argv += [f"--label={name}={value}" for name, value in asked["labels"].items()]
        argv += [
            f"--mount=type=bind,source={mount['Source']},target={mount['Target']}{',readonly' * mount['ReadOnly']}"
            for mount in asked["mounts"]
        ]
        argv += [f"--env={name}={value}" for name, value in asked["environment"].items()]
        argv += ["--gpus", "all"] if job.gpu else []
        arguments = [part.target if isinstance(part, Mount) else part for part in job.argv]
        run = [*argv, "--entrypoint", "python", environment, *arguments]
        writable = [str(mount.source.resolve()) for mount in job.mounts if mount.writable]
        make = [["mkdir", "--parents", *writable]] if writable else []
        lend = [["chown", "--recursive", asked["user"], *writable]] if writable and os.getuid() == 0 else []
        return [*make, *lend, run]

    def run(self, environment: Environment, job: Job, listener: Listener | None = None) -> int:
        """See :class:`toolkit.engine.protocol.Engine`."""
        return container.run(self._client, job, image=environment.digest, listener=listener)

    def _plan(self, recipe: Recipe) -> ImagePlan:
        return image.plan(
            recipe,
            target=self._target,
            base=self._base.reference,
            base_id=self._base.identity,
            ca_bundle=self._ca_bundle,
            tag=self._tag,
        )

    def _find(self, reference: str) -> Any | None:
        with translating_errors("looking for an image"):
            try:
                return self._client.images.get(reference)
            except ImageNotFound:
                return None

    def _record(self, recipe: Recipe, plan: ImagePlan, found: Any, folder: Path) -> None:
        lock = digest.digest_file(project.locate(f"docker/requirements/{recipe.requirements}.txt"))
        parent = (
            {"kind": "wheel", "name": recipe.wheel.name, "digest": digest.digest_file(recipe.wheel)}
            if recipe.wheel
            else {"kind": "lock", "name": f"{recipe.requirements}.txt", "digest": lock}
        )
        facts = {
            "tag": plan.tag,
            "plan": plan.digest,
            "base": {"name": self._base.reference, "digest": self._base.identity},
            "bytes": found.attrs["Size"],
            "labels": found.labels,
            "engine": "docker",
        }
        manifest.write(folder, manifest.Manifest(kind="image", digest=str(found.id), parent=parent, facts=facts))


def _explain(error: BuildError, log: Path) -> ToolkitError:
    """The same failure in the installer's words: BuildKit's own last ones are a piece of the Dockerfile."""
    said = [line.strip() for line in log.read_text(errors="replace").splitlines() if _CAUSE.search(line)]
    why = "\n       ".join(said) or error.why
    if any(_OTHER_BYTES.search(line) for line in said):
        return IntegrityError(
            "a downloaded package does not have the hash that the lock promises",
            why=why,
            remedy="do not install it: find out which mirror or proxy served it",
        )
    return BuildError(error.what, why=why, remedy=error.remedy)
