import re

from toolkit.base.digest import shorten

LABEL_PREFIX = "io.github.tensorflow-toolkit"
"""Reverse-DNS prefix of the project's labels (OCI reserves org.opencontainers)."""

OWNER_LABEL = f"{LABEL_PREFIX}.owner"
"""Label of every image, container, network and volume that the toolkit makes, in whatever clone."""

STATE_LABEL = f"{LABEL_PREFIX}.state"
"""Label of containers and networks with the id of the state folder for which they were made: see ``ownership``."""

USER_LABEL = f"{LABEL_PREFIX}.user"
"""Label of containers and networks with the number of the user who made them."""

COMPOSE_LABEL, COMPOSE_FOLDER_LABEL = "com.docker.compose.project", "com.docker.compose.project.working_dir"
"""Labels of what compose made, with its project and the folder of its file; networks have the first alone."""

JOB_LABEL = f"{LABEL_PREFIX}.job"
"""Label of every container of the toolkit. No image has it, because containers inherit their image's labels."""

PATHS_VARIABLE = "TOOLKIT_PATHS"
"""Variable with the host paths of a container job's mounts; ``train.system.output`` reads it."""

GPU_VARIABLE = "TOOLKIT_REQUIRE_GPU"
"""Variable by which a job that was given GPUs ends with an error if it finds none; ``train.step.runtime`` reads it."""

PLAN_LABEL = f"{LABEL_PREFIX}.plan"
"""Label with the digest of an image's plan. An image with the digest of the present plan is up to date."""

LOCK_LABEL, WHEEL_LABEL = f"{LABEL_PREFIX}.lock", f"{LABEL_PREFIX}.wheel"
"""Labels with the digest of the locked set of an image, and of the user's wheel if it has one."""

INSTRUCTIONS_LABEL = f"{LABEL_PREFIX}.instructions"
"""Label with the processor instructions that an image's TensorFlow needs beyond AVX."""

BAZEL_MOUNT = "toolkit-bazel-"
"""Start of the id of each Bazel cache mount in docker/Dockerfile; the name from ``--cache`` follows."""

REBUILD_CACHE = "verify-"
"""Start of the name of a cache that one ``toolkit reproduce WHEEL`` uses."""

IMAGE_REPOSITORY = "toolkit"
STANDIN_BASE = re.compile(r"toolkit/base:python3\.[0-9]+-(?:trixie|bookworm)")
"""Names of the images that docker/base/bootstrap makes on machines that reach no container registry."""

SCRIPT_IMAGES = frozenset({"toolkit/toolchain:llvm-17", "toolkit/bazel:debian"})
"""Made by docker/base/bootstrap-bazel."""

_SET = r"(?:cpu|cuda)(?:-[0-9]+(?:\.[0-9]+)+)*"
"""Form of the names of locked sets for images."""

_COMPOSE_IMAGE = re.compile(rf"toolkit/train:compose-{_SET}")
"""Form of the image names in compose.yaml and compose.gpu.yaml."""

_PLANNED_IMAGE = re.compile(
    rf"{IMAGE_REPOSITORY}/(?:(?:runtime|train):{_SET}|bazel-worker:{_SET}|offline:[a-z-]+)-([0-9a-f]{{12}})"
)
"""Form of the names that :func:`name_image` makes. The last word is of the digest of the image's plan."""


def name_standin(python: str) -> str:
    return f"toolkit/base:python{python}-trixie"


def name_image(target: str, variant: str, plan: str) -> str:
    return f"{IMAGE_REPOSITORY}/{target}:{variant}-{shorten(plan)}"


def is_given(name: str, plan: str) -> bool:
    """Return whether the toolkit chose an image's name. Its label is not enough: derived images inherit labels."""
    fixed = name in SCRIPT_IMAGES or STANDIN_BASE.fullmatch(name) or _COMPOSE_IMAGE.fullmatch(name)
    planned = _PLANNED_IMAGE.fullmatch(name)
    return bool(fixed) or (planned is not None and bool(plan) and planned[1] == shorten(plan))
