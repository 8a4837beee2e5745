"""Runs ``python -m train``: the job in a process of its own."""

from collections.abc import Sequence

from train.cli import main


def start(argv: Sequence[str] | None = None) -> int:
    """Run the job, which gives up the network for good once its data is loaded; returns the exit code."""
    return main(argv, close_network=True)


if __name__ == "__main__":
    raise SystemExit(start())
