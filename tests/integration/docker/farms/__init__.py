"""Real remote executors for Bazel, each in its own container: Debian's justbuild, and buildbox-casd."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.docker import stages
from tests.integration.relay import Relay

IMAGE = "toolkit/executor:tests"
PORT = 50070
STORE = "/srv/just"
"""Folder of justbuild, which is what the image starts. It accepts no results from clients."""
CASD = ("--privileged", "--entrypoint", "start-casd")
"""Options for buildbox-casd, which starts actions by bubblewrap."""


class Farm:
    """A server in a container, and a relay with an address that outlives it; ``name`` is the container's."""

    def __init__(self, *options: str) -> None:
        self.name = call("run", "--detach", *options, IMAGE)
        self._address = ""
        self._calls: dict[bytes, tuple[Callable[[], object], bool]] = {}
        self._answers = threading.Event()
        self._answers.set()
        listener = socket.create_server((stages.find_gateway(), 0))
        self.url = f"grpc://{listener.getsockname()[0]}:{listener.getsockname()[1]}"
        self._relay = Relay(listener, self._reach, self._hear, lambda _: self._answers.wait())
        self._address = wait_for(self.name, PORT)

    def kill(self, delay: float = 0) -> None:
        time.sleep(delay)
        call("kill", self.name)

    def start(self) -> None:
        call("start", self.name)
        self._address = wait_for(self.name, PORT)

    def freeze(self) -> None:
        # The engine may fail to stop processes that start others at that moment; then it lets all go on.
        for _ in range(50):
            done = subprocess.run(["docker", "pause", self.name], check=False, capture_output=True, text=True)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError(done.stderr)

    def thaw(self) -> None:
        call("unpause", self.name)

    def run(self, *argv: str) -> str:
        return call("exec", self.name, *argv)

    def when(self, call: bytes, action: Callable[[], object], *, held: bool = False) -> threading.Event:
        """Carry out an action at the next first use of a call on a connection; the event says that it is done.

        ``held``: from the call until then the server works, but clients hear nothing of it.
        """
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._calls[call] = act, held
        return done

    def close(self) -> None:
        self._answers.set()
        self._relay.cut()
        subprocess.run(["docker", "rm", "--force", "--volumes", self.name], check=False, capture_output=True)

    def _reach(self) -> socket.socket:
        return socket.create_connection((self._address, PORT), timeout=60)

    def _hear(self, said: bytes) -> None:
        # HTTP/2 names a call in plain text at its first use on a connection, and by a number from then on.
        for call in [call for call in self._calls if call in said]:
            if found := self._calls.pop(call, None):
                if found[1]:
                    self._answers.clear()
                threading.Thread(target=self._carry_out, args=found[:1], daemon=True).start()

    def _carry_out(self, action: Callable[[], object]) -> None:
        try:
            action()
        finally:
            self._answers.set()


def build() -> None:
    worker = "toolkit/worker:tests"
    outcome = stages.build("bazel-worker", tag=worker)
    assert outcome.code == 0, outcome.text
    trusted = ["--secret", f"id=ca,src={os.environ['SSL_CERT_FILE']}"] if "SSL_CERT_FILE" in os.environ else []
    contexts = (f"worker=docker-image://{worker}", f"scripts={stages.ROOT}/docker/scripts")
    given = [word for context in contexts for word in ("--build-context", context)]
    stages.make(Path(__file__).parent, IMAGE, *given, *trusted)


@contextmanager
def serve(*options: str) -> Iterator[Farm]:
    """Start a server. ``options``: of ``docker run``."""
    build()
    farm = Farm(*options)
    try:
        yield farm
    finally:
        farm.close()


def wait_for(name: str, port: int, seconds: float = 60) -> str:
    """Wait until the server in a container takes connections, and return the container's address."""
    address = call("inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((address, port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
        else:
            return address


def call(*argv: str) -> str:
    return subprocess.run(["docker", *argv], check=True, capture_output=True, text=True).stdout.strip()
