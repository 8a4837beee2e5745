"""A real remote executor for Bazel: Debian's justbuild, which accepts no results from clients, in its own container."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages

IMAGE = "toolkit/executor:tests"
PORT = 50070


def build() -> None:
    worker = "toolkit/worker:tests"
    outcome = stages.build("bazel-worker", tag=worker)
    assert outcome.code == 0, outcome.text
    argv = ["docker", "buildx", "build", "--quiet", "--build-context", f"worker=docker-image://{worker}"]
    argv += ["--tag", IMAGE, "--label", "io.github.tensorflow-toolkit.owner=toolkit", "--load"]
    subprocess.run([*argv, Path(__file__).parent], check=True, capture_output=True)


@contextmanager
def serve() -> Iterator[str]:
    build()
    argv = ["docker", "run", "--rm", "--detach", IMAGE]
    name = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    try:
        template = "{{.NetworkSettings.IPAddress}}"
        argv = ["docker", "inspect", "--format", template, name]
        address = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        _wait(address)
        yield f"grpc://{address}:{PORT}"
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True)


def _wait(address: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, PORT), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return
