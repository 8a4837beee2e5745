"""A real Slurm with two machines in one container, with the training image's Python and job, and this ``toolkit``."""

import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jinja2

from tests.integration.docker import stages

IMAGE = "toolkit/slurm:{suite}"
SUITES = {"bullseye": "20.11", "bookworm": "22.05", "trixie": "24.11", "sid": ""}
"""The Slurm of each Debian; that of sid changes."""

HOSTS = {"farm": "127.0.0.1", "node1": "127.0.0.2", "node2": "127.0.0.3"}

BEFORE_ITS_END = ("PENDING", "RUNNING", "SIGNALING", "COMPLETING", "REQUEUED")


class Farm:
    """Run commands in the cluster, whose folder ``/work`` is ``folder``."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = ["docker", "exec", "--workdir", "/work", self.name, *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def wait_for(self, text: str, count: int, seconds: float = 300) -> None:
        """Wait until a text stands in the logs so many times."""
        end = time.monotonic() + seconds
        while self.read_log().count(text) < count:
            assert time.monotonic() < end, self.read_log()
            time.sleep(0.05)

    def wait(self, job: str, seconds: float = 300) -> str:
        """Return what Slurm says of a job that has ended."""
        end = time.monotonic() + seconds
        while True:
            said = self("scontrol", "show", "job", job).stdout
            if not any(f"JobState={state}" in said for state in BEFORE_ITS_END):
                return said + self.read_log()
            assert time.monotonic() < end, said + self.read_log()
            time.sleep(0.2)

    def read_log(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))


@contextmanager
def start(train: str, folder: Path, suite: str = "trixie", *, packages: str = "") -> Iterator[Farm]:
    """Start the cluster. ``packages``: others that its machines have."""
    build = ["--build-context", f"train=docker-image://{train}", "--build-arg", f"SUITE={suite}"]
    build += ["--build-arg", f"PACKAGES={packages}"]
    # Slurm keeps the processes of a job in a control group.
    options = ["--hostname", "farm", "--network", "none", "--privileged", "--cgroupns", "private"]
    options += [f"--add-host={name}:{address}" for name, address in HOSTS.items()]
    options += [f"--volume={stages.ROOT / part}:/opt/toolkit/{part}:ro" for part in ("toolkit", "docker")]
    # The command fills templates by it; the job, whose Python this is, does not need it.
    options += [f"--volume={Path(jinja2.__file__).parent}:/opt/toolkit/jinja2:ro"]
    options += [f"--volume={sysconfig.get_path('purelib')}:/packages:ro", f"--volume={folder}:/work"]
    with stages.start(Path(__file__).parent, IMAGE.format(suite=suite), *build, options=options) as name:
        with subprocess.Popen(["docker", "logs", "--follow", name], stdout=subprocess.PIPE, text=True) as log:
            assert log.stdout
            assert any(line.strip() == "ready" for line in log.stdout)
            log.terminate()
        yield Farm(name, folder)
