"""``python -m train``: the job in a process of its own, which gives up the network when its data is there."""

from collections.abc import Sequence

from train.cli import main


def start(argv: Sequence[str] | None = None) -> int:
    """Run the job and close the network to this process, for good; returns the exit code."""
    return main(argv, close_network=True)


if __name__ == "__main__":
    raise SystemExit(start())
