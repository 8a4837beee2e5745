"""A host with a real Apptainer, without Docker: a container with this ``toolkit``, whose folder ``/work`` is shared."""

import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages

IMAGE = "toolkit/apptainer:tests"
NAMESPACES = (
    *(f"--security-opt={part}=unconfined" for part in ("apparmor", "seccomp", "systempaths")),
    "--device=/dev/fuse",
)
"""What Docker must allow so that Apptainer can make containers in a container; a machine of its own has it."""


class Host:
    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run the toolkit."""
        return self.execute("python3.11", "-m", "toolkit", *argv)

    def execute(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", "exec", self.name, *argv], capture_output=True, text=True, check=False)

    def list_jobs(self) -> str:
        """Return the processes that are left of jobs."""
        return self.execute("pgrep", "--list-full", "Apptainer|appinit|squashfuse|python").stdout


@contextmanager
def start(folder: Path, *options: str) -> Iterator[Host]:
    build = ("--build-context", f"base=docker-image://{stages.STANDIN}")
    mounts = [f"--volume={stages.ROOT / part}:/opt/toolkit/{part}:ro" for part in ("toolkit", "train", "docker")]
    mounts += [f"--volume={sysconfig.get_path('purelib')}:/packages:ro", f"--volume={folder}:/work"]
    given, command = ["--network", "none", *options, *mounts], ["sleep", "infinity"]
    with stages.start(Path(__file__).parent, IMAGE, *build, options=given, command=command) as name:
        if NAMESPACES[-1] in options:
            subprocess.run(["docker", "exec", "--user", "0", name, "chmod", "666", "/dev/fuse"], check=True)
        yield Host(name)
