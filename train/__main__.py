import gc
import os
import select
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from train.system import keyboard

COMMANDS = {
    "card": "train.report.card",
    "compare": "train.use.compare",
    "evaluate": "train.use.evaluation",
    "export": "train.use.export",
    "plot": "train.report.plot",
    "predict": "train.use.prediction",
    "serve": "train.service.server",
}
"""Module of each command beside training, by its name."""


def start(argv: Sequence[str] | None = None) -> int:
    """Run a command, or the job, and return the exit code. Once the data is loaded, the job closes the network."""
    from train.system.program import explain

    return explain(lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    if argv and argv[0] in COMMANDS:
        exit_code: int = import_module(COMMANDS[argv[0]]).main(argv[1:])
        return exit_code
    from train.cli import main

    return main(argv, close_network=True)


def drop_output() -> None:
    """Drop output that nobody reads any more. Python would try to write it at exit, and end with exit code 120.

    What is written later, when libraries are unloaded, is dropped too.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            read = _is_read(stream.fileno())
        except OSError:
            read = False
        if not read:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), stream.fileno())


def _is_read(stream: int) -> bool:
    watcher = select.poll()
    watcher.register(stream, 0)  # errors are always reported
    return not watcher.poll(0)


def lead(program: Callable[[], int]) -> None:
    """Run a program of the job as the one of this process."""
    keyboard.settle()
    # Imported here so that a Ctrl-C during the import prints no traceback.
    from train.system import signals

    signals.lead(program, end=_leave)


def _leave() -> None:
    drop_output()
    gc.freeze()  # else the interpreter searches all objects for garbage once more, for most of a second


if __name__ == "__main__":
    lead(start)
