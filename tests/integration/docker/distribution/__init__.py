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

    def list_answers(self, method: str, part: str) -> list[int]:
        """Return the status of each answer to a request whose address has a part."""
        said = subprocess.run(["docker", "logs", self.name], check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in (said.stdout + said.stderr).splitlines() if line.startswith("{")]
        return [
            line["http.response.status"]
            for line in lines
            if "http.response.status" in line
            and line["http.request.method"] == method
            and part in line["http.request.uri"]
        ]


@contextmanager
def serve(folder: Path) -> Iterator[Registry]:
    """Start a registry. ``folder`` gets the certificate of its authority."""
    argv = ["docker", "buildx", "build", "--quiet", "--build-context", f"base=docker-image://{stages.STANDIN}"]
    argv += ["--tag", IMAGE, "--label", "io.github.tensorflow-toolkit.owner=toolkit", "--load"]
    subprocess.run([*argv, Path(__file__).parent], check=True, capture_output=True)
    password = f"canary{uuid.uuid4().hex}"
    argv, variables = ["docker", "run", "--detach", "--env", "PASSWORD", IMAGE], {**os.environ, "PASSWORD": password}
    name = subprocess.run(argv, env=variables, check=True, capture_output=True, text=True).stdout.strip()
    try:
        host = f"{wait_for(name, PORT)}:{PORT}"
        call("cp", f"{name}:/srv/authority.pem", str(folder / "authority.pem"))
        yield Registry(name=name, host=host, password=password, authority=folder / "authority.pem")
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], check=False, capture_output=True)
