"""A stand-in for ``python`` that has TensorFlow loaded, which takes a new interpreter 4 seconds. It asks the one
process that loaded it for a forked child, which runs with the stand-in's arguments, environment, folder and streams."""

import atexit
import functools
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.command import become

ROOT = Path(__file__).parents[1]
CLIENT = f"""#!{sys.executable} -IS
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.realpath(__file__) + ".socket")
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
child = int.from_bytes(server.recv(8), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(child, number))
code = int.from_bytes(server.recv(8), "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if code != -signal.SIGKILL else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def start() -> Path:
    folder = tempfile.mkdtemp(prefix="loaded-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python = Path(folder) / "python"
    python.write_text(CLIENT)
    python.chmod(stat.S_IRWXU)
    read, write = os.pipe()
    argv = [sys.executable, "-m", "tests.loaded", f"{python}.socket", str(write)]
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    server = subprocess.Popen(argv, cwd=ROOT, env=quiet, pass_fds=[write], stdin=subprocess.PIPE)
    os.close(write)
    assert os.read(read, 1), f"the server ended with exit code {server.wait()}"
    os.close(read)
    return python


def serve(address: str, ready: int) -> None:
    for name in ("keras", "matplotlib.pyplot", "sklearn.datasets", "tensorflow"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        os.write(ready, b"x")
        os.close(ready)
        while sys.stdin not in (found := select.select([server, sys.stdin], [], [])[0]):
            connection = server.accept()[0] if found else None
            if connection and os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(connection)
                os._exit(0)


def _answer(connection: socket.socket) -> None:
    head, streams, _, _ = socket.recv_fds(connection, 8, 3)
    content = b""
    while len(content) < int.from_bytes(head, "big"):
        content += connection.recv(1 << 20)
    words, folder, variables = json.loads(content)
    child = os.fork()
    if child == 0:
        connection.close()
        become(lambda: _run(words), words, folder, variables, dict(enumerate(streams)))
    connection.sendall(child.to_bytes(8, "big"))
    ended = os.pidfd_open(child)
    if connection in select.select([connection, ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(code.to_bytes(8, "big", signed=True))


def _run(words: list[str]) -> None:
    while words[0] in {"-P", "-u"}:
        words = words[1:]
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
