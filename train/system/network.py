"""Bounds how long another machine may take, and closes the network for this process.

The time of a request has two bounds: one for the head of the answer, and one for the bytes of its body in each second.

A job of compose's service has a network, because compose cannot know the data set. Linux lets a process give up system
calls for good (https://docs.kernel.org/userspace-api/seccomp_filter.html); Docker's default profile allows it.

The toolkit uses the module too, so it imports the standard library alone.
"""

import ctypes
import errno
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Final, NamedTuple, TypeVar

SLOWEST: Final = 10_000
"""Bytes a second that a body must have, measured over each span of patience."""

_Result = TypeVar("_Result")


def within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Return the result of a call. Raises TimeoutError if it takes longer, and passes on what the call raises.

    The time limit of a socket is for one read, so a peer that sends one byte at a time never exceeds it. The call runs
    in a thread of its own, which is left alone when the time is over.
    """
    results: list[_Result] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(call))
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return results[0]


def list_pieces(read: Callable[[], bytes], patience: float) -> Iterator[bytes]:
    """Yield the pieces of a body. Raises TimeoutError if fewer than SLOWEST bytes a second come.

    `read` returns what is there, and nothing at the end.
    """
    began, count = time.monotonic(), 0
    while piece := read():
        yield piece
        count += len(piece)
        if (elapsed := time.monotonic() - began) > patience:
            if count < SLOWEST * elapsed:
                raise TimeoutError(f"only {count:,} bytes came in {elapsed:.0f} s")
            began, count = time.monotonic(), 0


_SET_NO_NEW_PRIVILEGES = 38
_SET_MODE_FILTER, _SYNCHRONIZE_THREADS = 1, 1
_IO_URING_SETUP = 425
"""Number of a system call, on every machine."""
_X32_BIT = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in ``struct seccomp_data``; the low half of an argument comes first."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("jump_true", ctypes.c_ubyte),
        ("jump_false", ctypes.c_ubyte),
        ("value", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


class _Machine(NamedTuple):
    architecture: int  # as audit names it: linux/audit.h
    seccomp: int  # seccomp, socket: numbers of system calls
    socket: int


_MACHINES: Final = {
    "x86_64": _Machine(architecture=0xC000003E, seccomp=317, socket=41),
    "aarch64": _Machine(architecture=0xC00000B7, seccomp=277, socket=198),
}
"""By the kernel's name of the machine. The filter was loaded on x86_64 alone."""


def close_network() -> str:
    """Refuse new network sockets in all threads and children, for good; returns why the network stays open, or nothing.

    ``AF_UNIX`` and ``AF_NETLINK`` stay possible. Others fail with "Network is unreachable", as in a container without a
    network. io_uring is refused because it can open sockets.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return f"not known how on {platform.machine()}"
    rules = _compose_rules(machine)
    program = _Program(len(rules), (_Instruction * len(rules))(*(_Instruction(*rule) for rule in rules)))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return os.strerror(ctypes.get_errno())
    failed = library.syscall(machine.seccomp, _SET_MODE_FILTER, _SYNCHRONIZE_THREADS, ctypes.byref(program))
    if failed > 0:
        return f"thread {failed} could not be included"
    return os.strerror(ctypes.get_errno()) if failed else ""


def _compose_rules(machine: _Machine) -> list[tuple[int, int, int, int]]:
    """Return the filter's instructions: code, jumps if true and if false, value."""
    refuse = _REFUSE | errno.ENETUNREACH
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 8, machine.architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 6, 0, _X32_BIT),
        (_EQUAL, 5, 0, _IO_URING_SETUP),
        (_EQUAL, 0, 3, machine.socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, socket.AF_UNIX),
        (_EQUAL, 0, 1, socket.AF_NETLINK),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, refuse),
    ]
