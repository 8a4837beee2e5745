import mmap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import nvidia_tools
from tests.command import Run
from toolkit.graft import cubin, library
from toolkit.wheel import archive, fatbin
from toolkit.wheel.elf import MAGIC

pytestmark = nvidia_tools.needed
ARCHITECTURES = (75, 90)


def compose(cubins: Mapping[int, bytes]) -> bytes:
    entries = [fatbin.pack_cubin(code, number, cubin.read_compatibility(code)) for number, code in cubins.items()]
    return fatbin.compose(entries)


@pytest.mark.parametrize("options", [(), ("--compress-mode=none",)])
def test_what_fatbinary_packs_is_read(options: tuple[str, ...], tmp_path: Path) -> None:
    cubins = nvidia_tools.assemble(tmp_path, (75, 90, 120))
    theirs = nvidia_tools.pack(tmp_path, tuple(cubins), *options)
    entries = fatbin.read_container(theirs, 0).entries
    assert [entry.name for entry in entries] == ["sm_75", "sm_90", "sm_120"]
    unpacked = [fatbin.unpack(theirs, entry) for entry in entries]
    # Machine code is padded to eight bytes.
    assert [code[: len(own)] for code, own in zip(unpacked, cubins.values(), strict=True)] == list(cubins.values())


def collect(data: mmap.mmap, folder: Path) -> tuple[Path, Counter[str]]:
    """Write all fat binaries of a library into one file, and count their machine code by architecture."""
    blobs = library.take_inventory(data).blobs
    path = folder / "all.fatbin"
    path.write_bytes(b"".join(data[blob.start : blob.container.end] for blob in blobs))
    return path, Counter(entry.name for blob in blobs for entry in blob.container.entries if entry.kind == "sm")


def test_nvidias_tools_read_what_a_graft_adds_and_moves(tmp_path: Path) -> None:
    cubins = nvidia_tools.assemble(tmp_path, (*ARCHITECTURES, 120))
    before = nvidia_tools.link(tmp_path, compose({number: cubins[number] for number in ARCHITECTURES}))
    assert nvidia_tools.list_code(before) == ["sm_75", "sm_90"] * 2
    with library.mapping(before) as data:
        inventory = library.take_inventory(data)
    contents = {blob.start: compose(cubins) for blob in inventory.blobs}
    after = tmp_path / "b.so"
    assert library.write(before, after, inventory, contents, {}).segment
    assert nvidia_tools.list_code(after) == ["sm_75", "sm_90", "sm_120"]  # the other is in the second section
    with library.mapping(after) as data:
        path, _ = collect(data, tmp_path)
    assert Counter(nvidia_tools.list_code(path)) == {"sm_75": 2, "sm_90": 2, "sm_120": 2}
    added = nvidia_tools.extract(path, tmp_path / "extracted", "sm_120")
    assert [file.read_bytes()[: len(cubins[120])] for file in added] == [cubins[120]] * 2
    assert all("twice" in nvidia_tools.run("nvdisasm", "-c", file) for file in added)


@pytest.mark.weekly
@pytest.mark.timeout(3600)
def test_each_new_kernel_of_a_published_wheel_is_disassembled(tmp_path: Path) -> None:
    """Grafts the published wheel, which takes minutes, and lets NVIDIA's tools read each of its libraries."""
    done = Run(tmp_path)("graft", "--gpu", "RTX 5090")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("dist/*/*.whl")
    assert disassemble(wheel, tmp_path / "work") > 1400


def disassemble(wheel: Path, work: Path) -> int:
    """Let cuobjdump list and nvdisasm read each piece of machine code for 12.0; return how many there are."""
    count = 0
    with archive.open_wheel(wheel) as opened:
        for number, (name, data) in enumerate(opened.read_members(MAGIC)):
            folder = work / str(number)
            folder.mkdir(parents=True)
            path, codes = collect(data, folder)
            if not codes["sm_120"]:
                continue
            assert Counter(nvidia_tools.list_code(path)) == codes, name
            for file in nvidia_tools.extract(path, folder / "extracted", "sm_120"):
                assert ".text." in nvidia_tools.run("nvdisasm", "-c", file), f"{name}: {file.name}"
                file.unlink()
                count += 1
    return count
