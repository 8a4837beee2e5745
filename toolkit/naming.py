"""Names that more than one room uses: labels, tags, prefixes."""

from typing import Literal

from toolkit.digest import shorten

EngineName = Literal["auto", "docker", "host"]

LABEL_PREFIX = "io.github.tensorflow-toolkit"
"""Reverse-DNS prefix of the project's labels (OCI reserves org.opencontainers)."""

OWNER_LABEL = f"{LABEL_PREFIX}.owner"
"""On every image, container and volume that the toolkit makes; ``toolkit clean`` looks for nothing else."""

JOB_LABEL = f"{LABEL_PREFIX}.job"
"""On every container of the toolkit, and on no image: what is built on an image inherits its labels."""

PATHS_VARIABLE = "TOOLKIT_PATHS"
"""Tells a job in a container the host paths of its mounts; ``train.paths`` reads it."""

PLAN_LABEL = f"{LABEL_PREFIX}.plan"
"""Digest of the plan that made an image: equal digest, nothing to do."""

BAZEL_MOUNT = "toolkit-bazel-"
"""Begins the id of each cache mount of Bazel in docker/Dockerfile; the name that ``--cache`` gives follows."""

REBUILD_CACHE = "verify-"
"""Begins the name of a cache that a single ``toolkit verify --rebuild`` uses."""

IMAGE_REPOSITORY = "toolkit"
STANDIN_BASE = "toolkit/base:python3.11-trixie"
"""Made by docker/base/bootstrap on machines that reach no container registry."""

SCRIPT_IMAGES = frozenset({"toolkit/toolchain:llvm-17", "toolkit/bazel:debian"})
"""Made by docker/base/bootstrap-bazel."""

COMPOSE_IMAGES = "toolkit/train:compose-"
"""Begins the names that compose.yaml and compose.gpu.yaml give."""


def name_image(target: str, variant: str, plan: str) -> str:
    """Return the name of an image that the user gave none.

    Args:
        target: the stage of docker/Dockerfile.
        variant: ``cpu`` or ``cuda-X.Y.Z``.
        plan: digest of the image's plan.
    """
    return f"{IMAGE_REPOSITORY}/{target}:{variant}-{shorten(plan)}"


def is_given(name: str, plan: str) -> bool:
    """Return whether the toolkit itself gave an image its name: then the image belongs to no user.

    Neither label nor name tells it alone: images built on an image inherit its labels, and a user may choose any name.

    Args:
        name: repository and tag.
        plan: what the image's label says of its plan, or empty.
    """
    if name in SCRIPT_IMAGES or name == STANDIN_BASE or name.startswith(COMPOSE_IMAGES):
        return True
    targets = tuple(f"{IMAGE_REPOSITORY}/{target}:" for target in ("runtime", "train"))
    return bool(plan) and name.startswith(targets) and name.endswith(f"-{shorten(plan)}")
