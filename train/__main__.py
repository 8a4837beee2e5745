import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

COMMANDS: Final = {"evaluate": "train.evaluation", "export": "train.export", "predict": "train.prediction"}
"""Module of each command beside training, by its name."""


def start(argv: Sequence[str] | None = None) -> int:
    """Run a command, or the job, and return the exit code. Once the data is loaded, the job closes the network."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in COMMANDS:
        found: int = import_module(COMMANDS[argv[0]]).main(argv[1:])
        return found
    from train.cli import main

    return main(argv, close_network=True)


def drop_output() -> None:
    """Drop output that nobody reads any more. Python would try to write it at exit, and end with exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
                os.dup2(nowhere.fileno(), stream.fileno())


if __name__ == "__main__":
    code = start()
    drop_output()
    raise SystemExit(code)
