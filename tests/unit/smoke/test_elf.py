"""Search paths of libraries that gcc made, and hostile bytes."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.smoke.conftest import Compiler
from toolkit.smoke.inside import gpu_rules, libraries


@pytest.mark.parametrize("flag", ["--enable-new-dtags", "--disable-new-dtags"])
def test_both_kinds_of_path_are_read(gcc: Compiler, tmp_path: Path, flag: str) -> None:
    (tmp_path / "beside").mkdir()
    library = tmp_path / "lib.so"
    library.write_bytes(gcc("int x;", f"-Wl,{flag}", "-Wl,-rpath,$ORIGIN/beside:/absent:$ORIGIN/../"))
    assert libraries.read_search_path(library) == [tmp_path / "beside", tmp_path.parent]


def test_no_path_is_no_folder(gcc: Compiler, tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(gcc("int y;"))
    assert libraries.read_search_path(tmp_path / "lib.so") == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(0, 63), st.binary(min_size=1, max_size=16), st.integers(16, 20000))
def test_damage_is_a_value_error(gcc: Compiler, tmp_path: Path, at: int, patch: bytes, length: int) -> None:
    whole = gcc("int x;", "-Wl,-rpath,/usr")
    file = tmp_path / "damaged.so"
    file.write_bytes((whole[:at] + patch + whole[at + len(patch) :])[:length])
    for read in (libraries.read_search_path, libraries.require_whole):
        with suppress(ValueError):
            read(file)


def test_a_library_cut_short_is_refused(gcc: Compiler, tmp_path: Path) -> None:
    file = tmp_path / "short.so"
    file.write_bytes(gcc("int y;"))
    libraries.require_whole(file)
    file.write_bytes(gcc("int y;")[:4000])
    with pytest.raises(ValueError, match=r"cut short: 4000 bytes of at least \d+"):
        libraries.require_whole(file)


def cubin(flags: int, machine: int = 190, abi: int = 7) -> bytes:
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    header[8] = abi
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<I", header, 48, flags)
    return bytes(header)


@pytest.mark.parametrize(
    ("flags", "abi", "architecture"),
    [(0x4B054B, 7, 75), (0x32055A, 7, 90), (0x6004B04, 8, 75), (0x6007802, 8, 120)],
)
def test_a_cubin_tells_its_architecture(flags: int, abi: int, architecture: int) -> None:
    """The flags are those that ptxas 12.6.68 and 13.0.88 write."""
    assert gpu_rules.read_cubin_architecture(cubin(flags, abi=abi)) == architecture


@pytest.mark.parametrize("data", [b"", b"\x7fELF", cubin(0x4B, machine=62), b"MZ" + bytes(62)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no ELF file for a GPU"):
        gpu_rules.read_cubin_architecture(data)
