"""Makes an image for ARM run on a machine of linux/amd64: its Python is QEMU with that Python."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages

BASE = f"{stages.STANDIN}-arm64"


def bootstrap() -> None:
    subprocess.run([stages.ROOT / "docker/base/bootstrap", "--platform", "linux/arm64"], check=True)


@contextmanager
def emulate(image: str) -> Iterator[str]:
    """Yield the name of an image that has what ``image`` has, and runs here."""
    name = f"{image}-emulated"
    argv = ["docker", "buildx", "build", "--quiet", "--load", "--provenance", "false", "--tag", name]
    argv += ["--build-context", f"scripts={stages.ROOT / 'docker/scripts'}"]
    argv += ["--build-arg", f"BASE_IMAGE={stages.STANDIN}", "--build-arg", f"IMAGE={image}"]
    argv += ["--secret", f"id=ca,src={os.environ['SSL_CERT_FILE']}"] if "SSL_CERT_FILE" in os.environ else []
    subprocess.run([*argv, Path(__file__).parent], check=True, capture_output=True)
    try:
        yield name
    finally:
        subprocess.run(["docker", "image", "rm", name], capture_output=True, check=True)
