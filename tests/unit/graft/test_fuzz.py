"""Damages fat binaries, cubins and libraries at random: each reader ends with a ValueError, and within bounds."""

import random
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.graft.maker import make_container, make_cubin, make_library
from toolkit.graft import cubin, library
from toolkit.wheel import fatbin

COUNT = 800
"""Damaged files for each reader."""

EXTREMES = (0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
MEMORY = 1 << 30
"""Bytes that a reader may take more than it has; a length that is believed would take terabytes."""


def damage(data: bytes, numbers: random.Random) -> bytes:
    """Return data with a few bits flipped, a number set to an extreme, a piece repeated, or its end cut off."""
    changed = bytearray(data)
    for _ in range(numbers.randint(1, 4)):
        place = numbers.randrange(len(changed))
        match numbers.randrange(4):
            case 0:
                changed[place] ^= 1 << numbers.randrange(8)
            case 1:
                size = numbers.choice((1, 2, 4, 8))
                value = numbers.choice(EXTREMES) & ((1 << 8 * size) - 1)
                changed[place : place + size] = value.to_bytes(size, "little")
            case 2:
                changed[place:place] = changed[place : place + numbers.randrange(64)]
            case _:
                del changed[max(place, 1) :]
    return bytes(changed)


def read_container(data: bytes, _: Path) -> None:
    for container in fatbin.find_containers(data):
        for entry in container.entries:
            fatbin.unpack(data, entry)


def search(data: bytes, _: Path) -> None:
    list(fatbin.search_containers(data, 0, len(data)))


def read_cubin(data: bytes, _: Path) -> None:
    cubin.read(data)
    cubin.read_compatibility(data)


def take_inventory(data: bytes, folder: Path) -> None:
    (folder / "x.so").write_bytes(data)
    with library.mapping(folder / "x.so") as mapped:
        library.take_inventory(mapped)


WHOLE = {
    read_container: make_container("one", "two") + make_container("three", target="sm_90a"),
    search: bytes(40) + make_container("one", "two") + b"P\xedU\xba" + bytes(40),
    read_cubin: make_cubin(120, {"one": (8, 8), "two": ()}, {"table": 64}),
    take_inventory: make_library([make_container("one")], [make_container("two")], relocatable=True),
}


@pytest.fixture
def bounded() -> Iterator[None]:
    """Let the process take no more than a gigabyte besides what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("read", WHOLE)
def test_damage_is_an_error_and_nothing_else(read: Callable[[bytes, Path], None], tmp_path: Path) -> None:
    numbers, refused = random.Random(0), 0  # noqa: S311 - the same damage each time
    read(WHOLE[read], tmp_path)
    for _ in range(COUNT):
        try:
            read(damage(WHOLE[read], numbers), tmp_path)
        except ValueError:
            refused += 1
    assert refused or read is search
