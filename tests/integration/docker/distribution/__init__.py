"""A real registry: Debian's docker-registry with TLS of its own authority and a login, in its own container."""

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.docker import stages
from tests.integration.docker.farms import call, wait_for
from toolkit.base.steps import repeat

IMAGE = "toolkit/registry:tests"
PORT = 5000


@dataclass(frozen=True)
class Registry:
    name: str  # of the container
    host: str
    password: str
    authority: Path

    def log_in(self, folder: Path, password: str = "") -> str:
        """Write what `docker login` would, and return the folder for ``DOCKER_CONFIG``."""
        auth = base64.b64encode(f"user:{password or self.password}".encode()).decode()
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"auths": {self.host: {"auth": auth}}}))
        return str(folder)


@contextmanager
def serve(folder: Path) -> Iterator[Registry]:
    """Start a registry, which takes a password. ``folder`` gets its authority."""
    stages.make(Path(__file__).parent, IMAGE, "--build-context", f"base=docker-image://{stages.STANDIN}")
    given = {"PASSWORD": f"canary{uuid.uuid4().hex}"}
    argv = ["docker", "run", "--detach", *repeat("--env", given), IMAGE]
    name = subprocess.run(argv, env={**os.environ, **given}, check=True, capture_output=True, text=True).stdout.strip()
    try:
        host = f"{wait_for(name, PORT)}:{PORT}"
        authority = folder / "authority.pem"
        call("cp", f"{name}:/srv/authority.pem", str(authority))
        yield Registry(name=name, host=host, password=given["PASSWORD"], authority=authority)
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], check=False, capture_output=True)
