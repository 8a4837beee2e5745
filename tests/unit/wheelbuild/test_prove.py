import struct
from pathlib import Path

import prove
import pytest


@pytest.mark.parametrize(
    ("text", "architectures"),
    [
        ("7.5", ["75"]),
        ("sm_75,compute_75", ["75"]),
        (" 7.5 , 8.0,sm_90a,9.0a", ["75", "80", "90a"]),
        ("10.0,compute_120", ["100", "120"]),
    ],
)
def test_all_forms_of_a_capability_are_read(text: str, architectures: list[str]) -> None:
    assert prove.parse_capabilities(text) == architectures


@pytest.mark.parametrize("text", ["", " , ", "7", "7.5.1", "75", "sm_7", "sm75", "compute-75", "7.5;8.0"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="capability"):
        prove.parse_capabilities(text)


def write_elf(file: Path, *, abi: int, flags: int, machine: int = 190) -> Path:
    header = bytearray(64)
    header[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<H", header, 18, machine)
    struct.pack_into("<I", header, 48, flags)
    file.write_bytes(header)
    return file


def test_the_architecture_is_read_from_the_file(tmp_path: Path) -> None:
    assert prove.read_architecture(write_elf(tmp_path / "a.cubin", abi=7, flags=0x004B054B)) == 75


def test_what_is_no_cubin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(prove.ProofError, match="no ELF file for a GPU"):
        prove.read_architecture(write_elf(tmp_path / "a.o", abi=0, flags=75, machine=62))
    (tmp_path / "text").write_text("not an ELF file")
    with pytest.raises(prove.ProofError, match="no ELF file for a GPU"):
        prove.read_architecture(tmp_path / "text")


def test_a_failing_compiler_is_quoted() -> None:
    with pytest.raises(prove.ProofError, match="a reason"):
        prove.run("python3", "-c", "import sys; sys.exit('a reason')")
