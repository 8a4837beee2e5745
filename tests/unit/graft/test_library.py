import mmap
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.graft.maker import make_container, make_library
from toolkit.graft import library
from toolkit.wheel import fatbin

WRAPPED = [make_container("one"), make_container("two", "three")]
LOADED = [make_container("four"), make_container("five")]


def write(folder: Path, data: bytes, contents: Mapping[int, bytes]) -> tuple[library.Inventory, library.Layout, Path]:
    source, target = folder / "a.so", folder / "b.so"
    source.write_bytes(data)
    with library.mapping(source) as mapped:
        inventory = library.take_inventory(mapped)
    layout = library.write(source, target, inventory, contents, {})
    return inventory, layout, target


def take(folder: Path, data: bytes) -> library.Inventory:
    (folder / "x.so").write_bytes(data)
    with library.mapping(folder / "x.so") as mapped:
        return library.take_inventory(mapped)


def follow(data: mmap.mmap, blob: library.FatBinary) -> bytes:
    """Return the fat binary that the library itself names, as the CUDA run time or the loader of MLIR finds it."""
    assert blob.reference is not None
    form = "<q" if blob.reference.kind == "relocation" else "<i"
    address = blob.reference.base + struct.unpack_from(form, data, blob.reference.field)[0]
    found = fatbin.read_container(data, library.find_offset(data, address))
    return bytes(data[found.start : found.end])


@pytest.mark.parametrize("grown", [(0,), (1,), (0, 1), (2,), (0, 2, 3), (0, 1, 2, 3)])
def test_each_reference_leads_to_the_new_fat_binary(grown: tuple[int, ...], tmp_path: Path) -> None:
    data = make_library(WRAPPED, LOADED)
    blobs = take(tmp_path, data).blobs
    news = {index: make_container("new", "more", "and", cubins=(80, 89, 90)) for index in grown}
    _, layout, target = write(tmp_path, data, {blobs[index].start: new for index, new in news.items()})
    with library.mapping(target) as after:
        for index, blob in enumerate(blobs):
            assert follow(after, blob) == news.get(index, data[blob.start : blob.container.end])
        allowed = {place for start, stop in layout.changed for place in range(start, stop)}
        assert all(after[place] == data[place] for place in range(len(data)) if place not in allowed)
    assert bool(layout.segment) == (len(target.read_bytes()) > len(data))


def test_one_that_fits_stays_where_it_is(tmp_path: Path) -> None:
    data = make_library(WRAPPED, LOADED)
    small = make_container("one", cubins=(80,))
    inventory, layout, target = write(tmp_path, data, {take(tmp_path, data).blobs[0].start: small})
    (move,) = layout.moves
    assert (move.start, layout.segment) == (inventory.blobs[0].start, 0)
    changed = target.read_bytes()
    assert len(changed) == len(data)
    assert changed[move.start : move.start + len(small)] == small
    assert not any(changed[move.start + len(small) : inventory.blobs[0].container.end])


def test_a_new_segment_comes_last_and_takes_the_place_of_a_header(tmp_path: Path) -> None:
    data = make_library(WRAPPED)
    big = make_container(*(f"kernel{number}" for number in range(40)), cubins=(80, 89, 90))
    _, layout, target = write(tmp_path, data, {take(tmp_path, data).blobs[0].start: big})
    changed = target.read_bytes()
    headers = [struct.unpack_from("<IIQQQQQQ", changed, 64 + 56 * index) for index in range(4)]
    assert [kind for kind, *_ in headers] == [1, 1, 1, 0x6474E551]
    addresses = [address for kind, _, _, address, *_ in headers if kind == 1]
    assert addresses == sorted(addresses)
    _, flags, offset, address, _, size, memory, _ = headers[2]
    assert (flags, size, memory) == (4, layout.segment, layout.segment)
    assert (offset % 0x1000, address % 0x1000) == (0, 0)
    assert address >= 0x200000 + 0x5000  # behind what is zero at the start
    assert len(changed) == offset + size


def test_one_whose_address_stands_in_several_places_is_not_moved(tmp_path: Path) -> None:
    data = make_library(WRAPPED, LOADED, twice=True)
    blob = next(blob for blob in take(tmp_path, data).blobs if blob.section == ".rodata")
    assert blob.reference is None
    with pytest.raises(ValueError, match="cannot be moved"):
        write(tmp_path, data, {blob.start: make_container("new", "more", "and", cubins=(80, 89, 90))})
    write(tmp_path, data, {blob.start: make_container("four", cubins=(80,))})  # what fits is written


@pytest.mark.parametrize("cut", [0, 10, 70, 300, 2000])
def test_a_library_that_is_cut_off(cut: int, tmp_path: Path) -> None:
    data = make_library(WRAPPED, LOADED)[:cut]
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged|longer|empty"), library.mapping(tmp_path / "x.so") as mapped:
        library.take_inventory(mapped)
