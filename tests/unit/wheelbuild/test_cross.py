"""The cross proof with stand-ins for compilers and QEMU: every step can fail, each with its own words."""

import json
import os
import struct
from pathlib import Path

import cross
import prove
import pytest

from tests.unit.wheelbuild.test_prove import write_elf

TOOL = """#!/bin/sh
here={folder}
previous=; out=
for word; do [ "$previous" != -o ] || out=$word; previous=$word; done
case ${0##*/}:" $* " in
  *" -dumpversion "*) echo 22.1.8 ;;
  *" -dumpfullversion "*) echo 14.2.0 ;;
  ld.lld-22:*) echo "LLD 22.1.8" ;;
  ptxas:*--version*) echo "V12.8.93" ;;
  ptxas:*) cp $here/made/cubin "${3#--output-file=}" ;;
  qemu-aarch64:*--version*) echo "qemu-aarch64 version 10.0.13" ;;
  qemu-aarch64:*/load*) cat $here/made/answer ;;
  qemu-aarch64:*) exit $(cat $here/made/status) ;;
  llvm-nm-22:*) cat $here/made/symbols ;;
  llvm-objcopy-22:*) cp "${2%/*}/kernels.fatbin" "${1#--dump-section=.nv_fatbin=}" ;;
  *" --cuda-device-only "*) echo ".version 8.7" > $out ;;
  *) cp $here/made/${out##*/} $out ;;
esac
"""
NAMES = ("aarch64-linux-gnu-clang++-22", "aarch64-linux-gnu-g++-14", "ld.lld-22", "ptxas", "qemu-aarch64")
FILES = ("host", "kernels.o", "libkernels.so", "load", "libcudart.so.12")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put tools in the way, and return the folder of what they make."""
    folder, programs, library = tmp_path / "made", tmp_path / "bin", tmp_path / "cuda_runtime/lib"
    for each in (folder, programs, library, tmp_path / "include"):
        each.mkdir(parents=True)
    for name in (*NAMES, "llvm-nm-22", "llvm-objcopy-22"):
        (programs / name).write_text(TOOL.replace("{folder}", str(tmp_path)))
        (programs / name).chmod(0o755)
    for name in FILES:
        write_elf(folder / name, abi=0, flags=0, machine=cross.EM_AARCH64)
    (library / "libcudart.so.12").symlink_to(folder / "libcudart.so.12")
    write_elf(folder / "cubin", abi=7, flags=0x005A055A)
    for name, text in (("answer", "2.41 35"), ("status", "0"), ("symbols", "toolkit_add")):
        (folder / name).write_text(f"{text}\n")
    for name in ("CUDA", "PARTS"):
        monkeypatch.setattr(prove, name, tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    for name, value in (("LLVM", "22"), ("GCC", "14"), ("TENSORFLOW", "2.21.0"), ("CUDA", "12.8.1")):
        monkeypatch.setenv(f"{name}_VERSION", value)
    monkeypatch.setenv("COMPUTE_CAPABILITIES", "9.0")
    monkeypatch.delenv("PROOF_REPORT_ALL", raising=False)
    return folder


def test_the_evidence_names_the_platform_and_what_compiled(made: Path, tmp_path: Path) -> None:
    assert cross.main(tmp_path / "toolchain.json") == 0
    evidence = json.loads((tmp_path / "toolchain.json").read_text())
    assert evidence["platform"] == "linux/arm64"
    assert evidence["capabilities"] == [{"asked": "sm_90", "cubin": "sm_90"}]
    assert evidence["versions"]["glibc"] == "2.41"
    assert evidence["versions"]["qemu"] == "10.0.13"
    assert not (tmp_path / "work").exists()
    assert made.exists()


WRONG = [
    ("host", 62, "host is for ELF machine 62, not for ELF machine 183 (aarch64)"),
    ("kernels.o", 62, "kernels.o is for ELF machine 62"),
    ("libcudart.so.12", 62, "libcudart.so.12 is for ELF machine 62"),
    ("libkernels.so", 62, "libkernels.so is for ELF machine 62"),
    ("load", 62, "load is for ELF machine 62"),
    ("cubin", 183, "device_90.cubin is no ELF file for a GPU"),
]


@pytest.mark.parametrize(("name", "machine", "words"), WRONG, ids=[name for name, *_ in WRONG])
def test_a_file_for_another_machine_proves_nothing(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, machine: int, words: str
) -> None:
    data = bytearray((made / name).read_bytes())
    struct.pack_into("<H", data, 18, machine)
    (made / name).write_bytes(data)
    assert cross.main(tmp_path / "toolchain.json") == 7
    assert words in capsys.readouterr().err
    assert not (tmp_path / "toolchain.json").exists()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("host", "not an ELF file", "host is no ELF file"),
        ("status", "1", "qemu-aarch64 -L /usr/aarch64-linux-gnu"),
        ("answer", "2.41 0", "its launch is answered by 0, not 35 (the driver is insufficient) or 100"),
        ("answer", "", "its launch is answered by nothing"),
        ("symbols", "toolkit_add other", "the library exports toolkit_add, other"),
    ],
)
def test_each_failure_has_its_words(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str
) -> None:
    (made / name).write_text(text)
    assert cross.main(tmp_path / "toolchain.json") == 7
    said = capsys.readouterr().err
    assert said.startswith("toolchain: not proven for linux/arm64\n")
    assert words in said
    assert not (tmp_path / "toolchain.json").exists()


def test_a_capability_that_fails_is_reported_beside_the_others(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made.exists()
    monkeypatch.setenv("COMPUTE_CAPABILITIES", "8.7,9.0")
    monkeypatch.setenv("PROOF_REPORT_ALL", "1")
    monkeypatch.setattr(prove, "KEPT", None)
    assert cross.main(tmp_path / "toolchain.json") == 0
    evidence = json.loads((tmp_path / "toolchain.json").read_text())
    assert evidence["failed"] == {"sm_87": "asked for sm_87, the cubin is for sm_90"}
    assert [row["asked"] for row in evidence["capabilities"]] == ["sm_90"]


@pytest.mark.usefixtures("made")
def test_a_list_that_is_none_is_a_mistake_of_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTE_CAPABILITIES", "ninety")
    assert cross.main(tmp_path / "toolchain.json") == 2
