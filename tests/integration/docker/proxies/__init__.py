"""Debian's nginx and Caddy with the files of ``examples``, before the server of a run, all in one container."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages

IMAGE = "toolkit/proxies:tests"
HOST = "predict.example.org"
HASH = "$2a$14$zTlKgUuT4.jZ7FDe8//Mfumjy/0aU6PrzQvIYnj.kbZHJktSGDTwG"
"""What ``caddy hash-password`` makes of ``secret``."""

PROXIES: Mapping[str, str] = {
    "nginx": "nginx",
    # It would ask an authority for a certificate.
    "caddy": (
        r"printf '{\nlocal_certs\n}\nimport /examples/Caddyfile\n' > /tmp/Caddyfile"
        " && caddy start --config /tmp/Caddyfile --adapter caddyfile"
    ),
}
RELOADS: Mapping[str, str] = {
    "nginx": "nginx -s reload",
    "caddy": "caddy reload --force --config /tmp/Caddyfile --adapter caddyfile",
}


@contextmanager
def start(train: str, runs: Path) -> Iterator[str]:
    """Start the container, whose ``/runs`` is ``runs``, and return its name."""
    examples = stages.ROOT / "examples"
    options = ["--network", "none", f"--add-host={HOST}:127.0.0.1", f"--env=PASSWORD_HASH={HASH}", "--env=HOME=/root"]
    options += [f"--volume={runs}:/runs:ro", f"--volume={examples}:/examples:ro"]
    options += [f"--volume={examples / 'nginx.conf'}:/etc/nginx/conf.d/toolkit.conf:ro"]
    build = ("--build-context", f"train=docker-image://{train}")
    with stages.start(Path(__file__).parent, IMAGE, *build, options=options) as name:
        yield name


def call(name: str, shell: str, timeout: float = 120) -> str:
    """Run a command of the shell in the container, and return what it prints."""
    argv = ["docker", "exec", name, "sh", "-ec", shell]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
