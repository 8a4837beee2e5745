import os
import struct
from pathlib import Path

import fatbin
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


def write_elf(file: Path, *, abi: int, flags: int) -> Path:
    header = bytearray(64)
    header[:9] = b"\x7fELF\x02\x01\x01\x33" + bytes([abi])
    struct.pack_into("<H", header, 18, 190)
    struct.pack_into("<I", header, 48, flags)
    file.write_bytes(header)
    return file


def test_a_cubin_for_another_gpu_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write_elf(tmp_path / "made", abi=7, flags=0x004B054B)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ptxas").write_text(f'#!/bin/sh\ncp {made} "${{3#--output-file=}}"\n')
    (tmp_path / "bin/ptxas").chmod(0o755)
    monkeypatch.setattr(prove, "CUDA", tmp_path)
    toolchain = prove.Toolchain(llvm="22", gcc="g++-14", work=tmp_path, tensorflow="2.21.0")
    assert toolchain.assemble("75", tmp_path / "a.ptx") == tmp_path / "a.cubin"
    with pytest.raises(prove.ProofError, match="asked for sm_90a, the cubin is for sm_75"):
        toolchain.assemble("90a", tmp_path / "a.ptx")


CUBINS = [b"\x7fELF seventy-five", b"\x7fELF a hundred and twenty"]
IMAGE = fatbin.pack(list(zip((75, 120), CUBINS, strict=True)))


@pytest.mark.parametrize(
    ("exported", "section", "cubins", "words"),
    [
        (["toolkit_add", "_Z18__device_stub__add"], IMAGE, CUBINS, "exports toolkit_add, _Z18__device_stub__add"),
        ([], IMAGE, CUBINS, "exports nothing"),
        (["toolkit_add"], b"", CUBINS, "no fat binary"),
        (["toolkit_add"], bytes(len(IMAGE)), CUBINS, "no fat binary"),
        (["toolkit_add"], IMAGE, CUBINS[:1], "does not hold the cubins"),
        (["toolkit_add"], IMAGE.replace(b"seventy", b"damaged"), CUBINS, "does not hold the cubins"),
    ],
)
def test_another_library_is_refused(exported: list[str], section: bytes, cubins: list[bytes], words: str) -> None:
    with pytest.raises(prove.ProofError, match=words):
        prove.check_library(exported, section, cubins)


COMPILER = """#!/bin/sh
for word; do last=$word; done
case " $* " in
  *" -E "*) cat {folder}/source.cu ;;
  *" --version "*) echo clang 22 ;;
  *) echo compiled >> {folder}/log; echo ptx > "$last" ;;
esac
"""


@pytest.fixture
def keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> prove.Toolchain:
    (tmp_path / "clang++-22").write_text(COMPILER.format(folder=tmp_path))
    (tmp_path / "clang++-22").chmod(0o755)
    (tmp_path / "source.cu").write_text("text")
    (tmp_path / "nvvm/libdevice").mkdir(parents=True)
    (tmp_path / prove.LIBDEVICE).write_bytes(b"bitcode")
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(prove, "CUDA", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return prove.Toolchain(llvm="22", gcc="g++-14", work=tmp_path, tensorflow="2.21.0", kept=tmp_path / "kept")


@pytest.mark.parametrize(
    ("name", "text", "flag", "runs"),
    [
        ("source.cu", "text", "--cuda-gpu-arch=sm_75", 1),
        ("source.cu", "other text", "--cuda-gpu-arch=sm_75", 2),
        ("source.cu", "text", "--cuda-gpu-arch=sm_80", 2),
        (prove.LIBDEVICE, "other bitcode", "--cuda-gpu-arch=sm_75", 2),
        ("clang++-22", COMPILER.replace("clang 22", "clang 22.1"), "--cuda-gpu-arch=sm_75", 2),
    ],
)
def test_only_the_same_text_with_the_same_flags_is_not_compiled_again(
    keeping: prove.Toolchain, name: str, text: str, flag: str, runs: int
) -> None:
    folder, output = keeping.work, keeping.work / "out.ptx"
    keeping.compile(folder / "source.cu", output, "--cuda-gpu-arch=sm_75")
    (folder / name).write_text(text.replace("{folder}", str(folder)))
    output.unlink()
    keeping.compile(folder / "source.cu", output, flag)
    assert output.read_text() == "ptx\n"
    assert (folder / "log").read_text().count("compiled") == runs
