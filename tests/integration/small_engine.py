"""A second engine on its own disk, which a test can fill; root starts it on the first engine's bridge."""

import contextlib
import ipaddress
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_SUBNET = "{{(index .IPAM.Config 0).Subnet}}"


ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs a command in a network of its own, which has loopback alone."""


class SmallEngine:
    """An engine that answers on a socket. ``variables`` make `docker` talk to it; its disk is mounted at ``disk``.

    One that is ``alone`` has no network, and neither has what it runs.
    """

    def __init__(self, folder: Path, disk: Path, options: Sequence[str] = (), *, alone: bool = False) -> None:
        self.variables = {"DOCKER_HOST": f"unix://{folder / 'engine.sock'}"}
        self.disk = disk
        self._folder = folder
        self._options = options
        self._alone = alone
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        folder, log = self._folder, self._folder / "engine.log"
        argv = [*(ALONE if self._alone else ()), "dockerd", "--host", self.variables["DOCKER_HOST"]]
        argv += ["--data-root", self.disk / "docker", "--exec-root", folder / "exec"]
        argv += ["--pidfile", folder / "engine.pid", "--iptables=false", "--ip6tables=false"]
        argv += ["--bridge=none"] if self._alone else ["--bridge=docker0", f"--fixed-cidr={_find_range()}"]
        argv += self._options
        with log.open("ab") as stream:
            self._process = subprocess.Popen(argv, stdout=stream, stderr=stream)
        _wait(self, log)

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=60)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        os.kill(int((self._folder / "exec/containerd/containerd.pid").read_text()), signal.SIGKILL)
        for process in _find_users(self.disk):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def load(self, *images: str) -> None:
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saved:
            argv = ["docker", "load", "--quiet"]
            subprocess.run(argv, stdin=saved.stdout, env=os.environ | self.variables, capture_output=True, check=True)


@contextlib.contextmanager
def start(folder: Path, *, gib: int, options: Sequence[str] = (), alone: bool = False) -> Iterator[SmallEngine]:
    image, disk = folder / "disk.img", folder / "disk"
    disk.mkdir()
    with image.open("wb") as stream:
        stream.truncate(gib << 30)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    try:
        engine = SmallEngine(folder, disk, options, alone=alone)
        try:
            engine.run()
            yield engine
        finally:
            engine.stop()
    finally:
        subprocess.run(["umount", "--recursive", disk], check=True)
        image.unlink()


def _find_users(disk: Path) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (folder / "mountinfo").read_text().splitlines()
            # The fifth field is the mount point: proc_pid_mountinfo(5).
            if any(line.split()[4] == "/" and f"={disk}/" in line for line in lines):
                yield int(folder.name)


def _find_range() -> str:
    argv = ["docker", "network", "inspect", "bridge", "--format", _SUBNET]
    subnet = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    return str(list(ipaddress.ip_network(subnet).subnets(new_prefix=24))[-2])


def _wait(engine: SmallEngine, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        argv = ["docker", "info"]
        if subprocess.run(argv, env=os.environ | engine.variables, capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.3)
    raise TimeoutError(log.read_text()[-2000:])
