"""A real cache server for Bazel's HTTP protocol: Debian's nginx, in its own container."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages
from tests.integration.docker.farms import call, wait_for

IMAGE = "toolkit/webdav:tests"
PORT = 9090


@contextmanager
def serve() -> Iterator[tuple[str, str]]:
    """Start a server, and yield its URL and its container's name."""
    argv = ["docker", "buildx", "build", "--quiet", "--build-context", f"base=docker-image://{stages.STANDIN}"]
    argv += ["--tag", IMAGE, "--label", "io.github.tensorflow-toolkit.owner=toolkit", "--load"]
    subprocess.run([*argv, Path(__file__).parent], check=True, capture_output=True)
    name = call("run", "--detach", IMAGE)
    try:
        yield f"http://{wait_for(name, PORT)}:{PORT}", name
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], check=False, capture_output=True)
