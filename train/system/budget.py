"""Says how much a file may unpack to. What a file says of itself is asked before it is read, and more is an error."""

from typing import Final

from train.errors import DataError

MOST_TIMES: Final = 100
"""Largest size of what is unpacked, in sizes of the file. Images hardly shrink; more fills a disk or memory."""

FREE: Final = 100_000_000


def allow(packed: int) -> int:
    return MOST_TIMES * packed + FREE


def require(name: object, unpacked: int, packed: int) -> None:
    if unpacked > allow(packed):
        raise DataError(
            f"{name} unpacks to more than {MOST_TIMES} times its size",
            why="it was made to fill a disk or the memory",
            remedy="unpack it by hand, and give what was in it",
        )
