"""A second engine of its own, on a disk of its own that can be filled up. Only root can have one.

It hangs on the first engine's bridge, whose rules let its containers reach the network, with addresses at the far end
of that bridge's range; it makes no rules itself.
"""

import contextlib
import ipaddress
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_SUBNET = "{{(index .IPAM.Config 0).Subnet}}"


class SmallEngine:
    """An engine that answers on a socket.

    Attributes:
        variables: what makes `docker` talk to it.
        disk: its disk.
    """

    def __init__(self, socket: Path, disk: Path) -> None:
        self.variables = {"DOCKER_HOST": f"unix://{socket}"}
        self.disk = disk

    def load(self, *images: str) -> None:
        """Copy images from the first engine."""
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saved:
            argv = ["docker", "load", "--quiet"]
            subprocess.run(argv, stdin=saved.stdout, env=os.environ | self.variables, capture_output=True, check=True)

    @contextlib.contextmanager
    def filled(self, *, leave_mib: int) -> Iterator[None]:
        """Leave so much of the disk while the block runs."""
        file, state = self.disk / "filler", os.statvfs(self.disk)
        with file.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, state.f_bavail * state.f_frsize - (leave_mib << 20))
        try:
            yield
        finally:
            file.unlink()


@contextlib.contextmanager
def start(folder: Path, *, gib: int) -> Iterator[SmallEngine]:
    """An engine that ends with the block, and its disk with it.

    Args:
        folder: where its files lie; short, for the path of a socket is.
        gib: size of its disk, which takes only what is written to it.
    """
    image, disk, socket = folder / "disk.img", folder / "disk", folder / "engine.sock"
    disk.mkdir()
    with image.open("wb") as stream:
        stream.truncate(gib << 30)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, disk], check=True)
    try:
        argv = ["dockerd", "--host", f"unix://{socket}", "--data-root", disk / "docker"]
        argv += ["--exec-root", folder / "exec", "--pidfile", folder / "engine.pid", "--iptables=false"]
        argv += ["--ip6tables=false", "--bridge=docker0", f"--fixed-cidr={_find_range()}"]
        with (folder / "engine.log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            engine = SmallEngine(socket, disk)
            _wait(engine, folder / "engine.log")
            yield engine
        finally:
            process.terminate()
            process.wait(timeout=60)
    finally:
        subprocess.run(["umount", "--recursive", disk], check=True)
        image.unlink()


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
