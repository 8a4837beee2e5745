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


if __name__ == "__main__":
    raise SystemExit(start())
