"""A stand-in for ``python``, forked from a process that has loaded TensorFlow, which takes 4 seconds."""

import atexit
import functools
import gc
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
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
LIBRARIES = ("keras", "matplotlib.pyplot", "sklearn.datasets", "tensorflow")
"""What a job loads, but for its own modules: signals come while these are loaded, too."""

# The shell finds the interpreter, because the first line of a program allows no space in a path.
CLIENT = """#!/bin/sh
'''exec' "{python}" -IS "$0" "$@"
'''
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
    return make(sys.executable, os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"})


def make(interpreter: str, variables: Mapping[str, str]) -> Path:
    folder = tempfile.mkdtemp(prefix="loaded-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    python, log = Path(folder) / "python", Path(folder) / "log"
    python.write_text(CLIENT.format(python=interpreter))
    python.chmod(stat.S_IRWXU)
    read, write = os.pipe()
    argv = [interpreter, "-m", "tests.loaded", f"{python}.socket", str(write)]
    with log.open("w") as errors:
        server = subprocess.Popen(argv, cwd=ROOT, env=variables, pass_fds=[write], stdin=subprocess.PIPE, stderr=errors)
    os.close(write)
    assert os.read(read, 1), f"the server ended with exit code {server.wait()}: {log.read_text()}"
    os.close(read)
    return python


def serve(address: str, ready: int) -> None:
    gc.disable()
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
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


def become(
    main: Callable[[], object],
    argv: Sequence[str],
    folder: str | Path,
    variables: Mapping[str, str],
    streams: Mapping[int, int],
) -> NoReturn:
    code = 1
    try:
        for number, stream in streams.items():
            os.dup2(stream, number)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        tempfile.tempdir = None
        sys.argv = list(argv)
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001  (the interpreter does so too)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
