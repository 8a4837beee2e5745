"""Starts engines that treat users in other ways than Docker does by default, each with its own storage.

Root starts them: Podman for itself, an engine that maps users, and for an ordinary user, who is made and removed again,
rootless Docker and rootless Podman.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration import small_engine
from tests.integration.docker import stages

NAME = "toolkit-test"
PROGRAMS = ("podman", "rootlesskit", "newuidmap", "slirp4netns", "catatonit")
KINDS = ("rootless-docker", "rootless-podman", "podman", "mapped")

_SCRIPT = Path("/usr/share/docker.io/contrib/dockerd-rootless.sh")
_TUN = Path("/dev/net/tun")


@dataclass(frozen=True)
class User:
    name: str
    home: Path
    uid: int
    gid: int

    @property
    def variables(self) -> dict[str, str]:
        """Return what a login sets, with a folder for sockets and nothing of root's."""
        path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"HOME": str(self.home), "USER": self.name, "XDG_RUNTIME_DIR": str(self.home / "run"), "PATH": path}

    def start(self, argv: Sequence[str | Path], log: Path, **variables: str) -> "subprocess.Popen[bytes]":
        with log.open("ab") as stream:
            return subprocess.Popen(
                argv,
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                cwd=self.home,
                env=self.variables | variables,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def own(self, *tops: Path) -> None:
        for top in tops:
            for path in [top, *top.rglob("*")]:
                os.chown(path, self.uid, self.gid)

    def end(self) -> None:
        """End what runs as this user, such as Podman's process that keeps its namespace."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == self.uid:
                    os.kill(int(folder.name), signal.SIGKILL)


@dataclass(frozen=True)
class Engine:
    address: str
    user: User | None  # who calls; None for root

    def toolkit(self, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
        python = sys.executable
        variables = {name: value for name, value in os.environ.items() if not name.startswith("TOOLKIT_")}
        ids: dict[str, object] = {}
        if self.user:
            # The interpreter of the tests may lie in a folder of root.
            found = shutil.which(
                f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin"
            )
            assert found, "no Python of the version of the tests that an ordinary user can run"
            python, variables = found, self.user.variables
            ids = {"user": self.user.uid, "group": self.user.gid, "extra_groups": []}
        packages = os.pathsep.join([str(stages.ROOT), sysconfig.get_path("purelib")])
        variables |= {"DOCKER_HOST": self.address, "PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1"}
        variables |= {
            "TOOLKIT_ENGINE": "docker",
            "TOOLKIT_STATE": str(folder / "state"),
            "TOOLKIT_DATA": str(folder / "cache"),
        }
        argv = [python, "-m", "toolkit", *arguments]
        return subprocess.run(  # type: ignore[call-overload, no-any-return]
            argv, cwd=folder, env=variables, capture_output=True, text=True, check=False, **ids
        )

    def load(self, *images: str) -> None:
        with subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE) as saved:
            variables = os.environ | {"DOCKER_HOST": self.address}
            subprocess.run(
                ["docker", "load", "--quiet"], stdin=saved.stdout, env=variables, capture_output=True, check=True
            )


@contextlib.contextmanager
def make_user() -> Iterator[User]:
    """Make an ordinary user with subordinate ids, as `useradd` gives them where `newuidmap` is installed."""
    with tempfile.TemporaryDirectory(prefix="toolkit-", ignore_cleanup_errors=True) as top:
        Path(top).chmod(0o755)
        home = Path(top) / "home"
        subprocess.run(["useradd", "--create-home", "--home-dir", home, NAME], check=True)
        found = pwd.getpwnam(NAME)
        user = User(NAME, home, found.pw_uid, found.pw_gid)
        try:
            (home / "run").mkdir(mode=0o700)
            user.own(home / "run")
            yield user
        finally:
            user.end()
            time.sleep(1)
            subprocess.run(["userdel", NAME], check=True)


@contextlib.contextmanager
def start(kind: str, user: User) -> Iterator[Engine]:
    if kind == "mapped":
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)  # the engine's root, another user, must reach its files
            with small_engine.start(Path(folder), gib=8, options=[f"--userns-remap={NAME}"]) as engine:
                yield Engine(engine.variables["DOCKER_HOST"], None)
    elif kind == "podman":
        with tempfile.TemporaryDirectory() as folder, _start_podman(Path(folder)) as address:
            yield Engine(address, None)
    else:
        address = f"unix://{user.home}/run/{kind}.sock"
        log = user.home / f"{kind}.log"
        with contextlib.ExitStack() as stack:
            if kind == "rootless-docker":
                stack.enter_context(_opened_tun())
                process = user.start(["sh", _SCRIPT, "--host", address], log)
            else:
                settings = user.home / ".config/containers"
                settings.mkdir(parents=True)
                (settings / "storage.conf").write_text('[storage]\ndriver = "overlay"\n')
                user.own(user.home / ".config")
                process = user.start(["podman", "system", "service", "--time", "0", address], log)
            try:
                _wait(address, log)
                yield Engine(address, user)
            finally:
                process.terminate()
                process.wait(timeout=60)


@contextlib.contextmanager
def _opened_tun() -> Iterator[None]:
    """Let users open the device of virtual networks, as they may where udev runs."""
    mode = _TUN.stat().st_mode & 0o777
    _TUN.chmod(0o666)
    try:
        yield
    finally:
        _TUN.chmod(mode)


@contextlib.contextmanager
def _start_podman(folder: Path) -> Iterator[str]:
    # Podman raises these limits, which root may not do inside of some containers and virtual machines.
    limits = folder / "containers.conf"
    limits.write_text('[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n')
    address, log = f"unix://{folder}/podman.sock", folder / "log"
    argv = ["podman", "--root", folder / "storage", "--runroot", folder / "run", "system", "service", "--time", "0"]
    with log.open("wb") as stream:
        variables = os.environ | {"CONTAINERS_CONF": str(limits)}
        process = subprocess.Popen([*argv, address], env=variables, stdout=stream, stderr=stream)
    try:
        _wait(address, log)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=60)
        subprocess.run(["umount", "--recursive", folder / "storage/overlay"], capture_output=True, check=False)


def _wait(address: str, log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        variables = os.environ | {"DOCKER_HOST": address}
        if not subprocess.run(["docker", "version"], env=variables, capture_output=True, check=False).returncode:
            return
        time.sleep(0.5)
    raise TimeoutError(log.read_text()[-2000:])
