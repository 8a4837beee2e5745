"""Runs a function as an ordinary user, because root reads what it likes."""

import os
import traceback
from collections.abc import Callable

NOBODY = 65534


def run_as_ordinary(function: Callable[[], str]) -> str:
    """Return what a function says in a process of an ordinary user; in this process if the tests run as one."""
    if os.getuid():
        return function()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            said = function()
        except BaseException:  # noqa: BLE001 - the child must end here
            said = traceback.format_exc()
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said
