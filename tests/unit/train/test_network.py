import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import loaded
from train.command_line import parse
from train.system import network

TRY = """
import errno, socket, sys
def reach():
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "reached"
"""


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: [server.accept()[0].close() for _ in range(8)], daemon=True).start()
        yield server.getsockname()[1]


def run(program: str, port: int, *arguments: str) -> list[str]:
    done = subprocess.run(
        [loaded.start(), "-c", TRY + program, str(port), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_closed_network_is_closed_for_every_thread_and_child(port: int) -> None:
    program = """
import subprocess, threading
from train.system import network
opened, asked, answers = threading.Event(), threading.Event(), []
def wait():
    opened.set()
    asked.wait()
    answers.append(reach())
thread = threading.Thread(target=wait)
thread.start()
opened.wait()
print(reach())
print(network.close_network() or "closed")
asked.set()
thread.join()
print(reach(), *answers)
print(subprocess.run([sys.executable, "-c", "import socket; socket.socket()"], capture_output=True).returncode)
for family in (socket.AF_UNIX, socket.AF_NETLINK):
    socket.socket(family, socket.SOCK_DGRAM).close()
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_VSOCK):
    try:
        socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    assert run(program, port) == ["reached", "closed", *["ENETUNREACH"] * 2, "1", *["ENETUNREACH"] * 4]


def judge(machine: str, architecture: int, number: int, argument: int) -> bool:
    """Run the filter's instructions as the kernel does; return whether it lets a system call pass."""
    data = {network._ARCHITECTURE: architecture, network._NUMBER: number, network._FIRST_ARGUMENT: argument}
    rules, at, value = network._compose_rules(network._MACHINES[machine]), 0, 0
    while True:
        code, if_true, if_false, operand = rules[at]
        if code == network._RETURN:
            return operand == network._ALLOW
        if code == network._LOAD:
            value, met = data[operand], None
        else:
            met = value == operand if code == network._EQUAL else value >= operand
        at += 1 + (0 if met is None else if_true if met else if_false)


@pytest.mark.parametrize(
    ("machine", "architecture", "number"), [("x86_64", 0xC000003E, 41), ("aarch64", 0xC00000B7, 198)]
)
def test_the_filter_lets_pass_what_opens_no_network(machine: str, architecture: int, number: int) -> None:
    for family, passes in ((socket.AF_UNIX, True), (socket.AF_NETLINK, True), (socket.AF_INET, False), (17, False)):
        assert judge(machine, architecture, number, family) is passes
    for other in (0, number - 1, number + 1, 424, 426):
        assert judge(machine, architecture, other, socket.AF_INET), "another system call"
    assert not judge(machine, architecture, network._IO_URING_SETUP, 0)
    assert not judge(machine, architecture, network._X32_BIT | number, socket.AF_UNIX)
    assert not judge(machine, 0x40000003, number, socket.AF_UNIX), "that of a 32-bit program has other numbers"


@pytest.mark.parametrize(
    ("arguments", "needed"), [(["digits"], False), (["cifar100"], True), (["cifar10", "--data-dir", "."], False)]
)
def test_the_network_is_open_only_while_data_may_have_to_be_fetched(
    port: int, tmp_path: Path, arguments: list[str], needed: bool
) -> None:
    """The job is stopped where training would begin; the network is tried while data is loaded and at that point."""
    assert parse(arguments).needs_network is needed
    program = """
from types import SimpleNamespace
from train.run import job
from train.__main__ import start
from train.errors import CheckError
def load(config):
    print(reach())
    return SimpleNamespace(notes=())
def begin(*_, **__):
    print(reach())
    raise CheckError("enough")
job.load, job._lead = load, begin
assert start(sys.argv[2:]) == CheckError.exit_code
"""
    while_loading = "reached" if needed else "ENETUNREACH"
    assert run(program, port, *arguments, "--out", str(tmp_path)) == [while_loading, "ENETUNREACH"]
