import re

from toolkit.digest import shorten

LABEL_PREFIX = "io.github.tensorflow-toolkit"
"""Reverse-DNS prefix of the project's labels (OCI reserves org.opencontainers)."""

OWNER_LABEL = f"{LABEL_PREFIX}.owner"
"""Label of every image, container and volume that the toolkit makes; ``toolkit clean`` selects by labels."""

JOB_LABEL = f"{LABEL_PREFIX}.job"
"""Label of every container of the toolkit. No image has it, because containers inherit their image's labels."""

PATHS_VARIABLE = "TOOLKIT_PATHS"
"""Variable with the host paths of a container job's mounts; ``train.run.progress`` reads it."""

PLAN_LABEL = f"{LABEL_PREFIX}.plan"
"""Label with the digest of an image's plan. An image with the digest of the present plan is up to date."""

LOCK_LABEL, WHEEL_LABEL = f"{LABEL_PREFIX}.lock", f"{LABEL_PREFIX}.wheel"
"""Labels with the digest of the locked set of an image, and of the user's wheel if it has one."""

INSTRUCTIONS_LABEL = f"{LABEL_PREFIX}.instructions"
"""Label with the processor instructions that an image's TensorFlow needs beyond AVX."""

BAZEL_MOUNT = "toolkit-bazel-"
"""Start of the id of each Bazel cache mount in docker/Dockerfile; the name from ``--cache`` follows."""

REBUILD_CACHE = "verify-"
"""Start of the name of a cache that one ``toolkit verify --rebuild`` uses."""

IMAGE_REPOSITORY = "toolkit"
STANDIN_BASE = re.compile(r"toolkit/base:python3\.[0-9]+-(?:trixie|bookworm)(?:-(?:amd64|arm64))?")
"""Names of the images that docker/base/bootstrap makes on machines that reach no container registry."""

SCRIPT_IMAGES = frozenset({"toolkit/toolchain:llvm-17", "toolkit/bazel:debian"})
"""Made by docker/base/bootstrap-bazel."""

COMPOSE_IMAGES = "toolkit/train:compose-"
"""Start of the image names in compose.yaml and compose.gpu.yaml."""


def name_standin(python: str) -> str:
    return f"toolkit/base:python{python}-trixie"


def name_image(target: str, variant: str, plan: str) -> str:
    return f"{IMAGE_REPOSITORY}/{target}:{variant}-{shorten(plan)}"


def is_given(name: str, plan: str) -> bool:
    """Return whether the toolkit chose an image's name. Its label is not enough: derived images inherit labels."""
    if name in SCRIPT_IMAGES or STANDIN_BASE.fullmatch(name) is not None or name.startswith(COMPOSE_IMAGES):
        return True
    targets = tuple(f"{IMAGE_REPOSITORY}/{target}:" for target in ("runtime", "train", "bazel-worker", "offline"))
    return bool(plan) and name.startswith(targets) and name.endswith(f"-{shorten(plan)}")
