"""Names that more than one room uses: labels, tags, prefixes."""

from typing import Literal

EngineName = Literal["auto", "docker", "host"]

LABEL_PREFIX = "io.github.tensorflow-toolkit"
"""Reverse-DNS prefix of all labels of ours (OCI reserves org.opencontainers)."""

OWNER_LABEL = f"{LABEL_PREFIX}.owner"
"""On every image, container and volume that we make; ``toolkit clean`` looks for nothing else."""

JOB_LABEL = f"{LABEL_PREFIX}.job"
"""On every container that we make, and on no image: labels of an image pass on to what others build on it."""

PLAN_LABEL = f"{LABEL_PREFIX}.plan"
"""Digest of the plan that made an image: equal digest, nothing to do."""

IMAGE_REPOSITORY = "toolkit"
STANDIN_BASE = "toolkit/base:python3.11-trixie"
"""Made by docker/base/bootstrap on machines that reach no container registry."""
