from collections.abc import Sequence

from train.cli import main


def start(argv: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code. Once the data is loaded, the process closes its network for good."""
    return main(argv, close_network=True)


if __name__ == "__main__":
    raise SystemExit(start())
