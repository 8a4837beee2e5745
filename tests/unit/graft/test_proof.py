import struct
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.unit.graft.maker import make_container, make_cubin, make_library
from toolkit.base.errors import CheckError
from toolkit.graft import library, proof
from toolkit.wheel import fatbin

COMPATIBLE = b"\x02\x02\x05\0\x02\x03\x05\0"
OLD = make_container("one", "two")
DATA = make_library([OLD, make_container("other")], [make_container("four")])


def pack(kernels: dict[str, tuple[int, ...]], *, architecture: int = 120, variables: int = 64) -> bytes:
    return fatbin.pack_cubin(make_cubin(architecture, kernels, {"table": variables}), architecture, COMPATIBLE)


GOOD = pack({"one": (8, 8), "two": (8, 8)})


def list_entries(data: bytes) -> list[bytes]:
    return [data[entry.start : entry.end] for entry in fatbin.read_container(data, 0).entries]


def prove(
    folder: Path,
    new: bytes,
    *,
    kept: Collection[int] | None = None,
    spoil: Callable[[bytearray, library.Layout], object] | None = None,
) -> proof.Proven:
    source, target = folder / "a.so", folder / "b.so"
    source.write_bytes(DATA)
    with library.mapping(source) as before:
        inventory = library.take_inventory(before)
        start = inventory.blobs[0].start
        layout = library.write(source, target, inventory, {start: new}, {})
        if spoil:
            data = bytearray(target.read_bytes())
            spoil(data, layout)
            target.write_bytes(data)
        with library.mapping(target) as after:
            added = {start: frozenset({120})}
            return proof.prove("a.so", before, after, inventory, layout, added=added, kept=kept, words={})


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (pack({"one": (8, 8)}), "machine code and PTX differ in the kernel two"),
        (pack({"one": (8, 8), "two": (8, 8), "six": ()}), "machine code and PTX differ in the kernel six"),
        (pack({"one": (8, 8), "two": (8, 12)}), "the kernel two has other parameters"),
        (pack({"one": (8, 8), "two": (8,)}), "the kernel two has other parameters"),
        (pack({"one": (8, 8), "two": (8, 8)}, variables=128), "other variables"),
        (pack({"one": (8, 8), "two": (8, 8)}, architecture=100), "no machine code for sm_120"),
        (GOOD[:28] + struct.pack("<I", 120) + pack({"one": (8, 8), "two": (8, 8)}, architecture=100)[32:], "of sm_100"),
    ],
)
def test_other_machine_code_than_that_of_the_ptx(new: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=why):
        prove(tmp_path, fatbin.compose([*list_entries(OLD), new]))


def test_old_machine_code_is_missed_unless_it_may_go(tmp_path: Path) -> None:
    less = fatbin.compose([*list_entries(OLD)[1:], GOOD])
    for kept in (None, [80, 120]):
        with pytest.raises(CheckError, match="has lost its sm_80"):
            prove(tmp_path, less, kept=kept)
    assert prove(tmp_path, less, kept=[89, 120]).kernels == 2


def test_a_byte_elsewhere_is_noticed(tmp_path: Path) -> None:
    place = DATA.index(b"jit-compiled")

    def spoil(data: bytearray, _: library.Layout) -> None:
        data[place] ^= 1

    with pytest.raises(CheckError, match="which hold no GPU code"):
        prove(tmp_path, fatbin.compose([*list_entries(OLD), GOOD]), spoil=spoil)


def test_a_reference_to_another_fat_binary_is_noticed(tmp_path: Path) -> None:
    def spoil(data: bytearray, layout: library.Layout) -> None:
        (move,) = layout.moves
        assert move.blob.reference is not None
        struct.pack_into("<q", data, move.blob.reference.field, move.blob.address)

    with pytest.raises(CheckError, match="the reference to the fat binary"):
        prove(tmp_path, fatbin.compose([*list_entries(OLD), GOOD]), spoil=spoil)


@pytest.mark.parametrize("field", [4, 24, 32])  # type, offset and size of a section
def test_another_table_of_sections_is_noticed(field: int, tmp_path: Path) -> None:
    def spoil(data: bytearray, _: library.Layout) -> None:
        table, number = struct.unpack_from("<Q", data, 0x28)[0], 2
        data[table + 64 * number + field] ^= 1

    with pytest.raises(CheckError, match=r"the section '.nv_fatbin' is neither"):
        prove(tmp_path, fatbin.compose([*list_entries(OLD), GOOD]), spoil=spoil)
