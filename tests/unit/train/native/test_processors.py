"""Native kernels on processors that are not in this machine: emulated ones of AMD and Intel, without AVX-512.

QEMU computes every instruction by IEEE 754 in software, and reports maker and model of the emulated processor. What
it cannot show is an approximate instruction, whose result the maker of a processor chooses: the library has none.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native import is_required, list_instructions
from train.errors import PreflightError
from train.native import library

EMULATOR = "qemu-x86_64"
APPROXIMATE = re.compile(r"\tv?(?:rcp|rsqrt|exp2)\w*|\tf(?:sin|cos|sincos|ptan|patan|2xm1|yl2x\w*)\b")
VENDOR = """
#include <cpuid.h>
#include <cstdio>
int main() {
  unsigned text[4] = {};
  __get_cpuid(0, text + 3, text, text + 2, text + 1);
  puts(reinterpret_cast<const char *>(text));
}
"""


@pytest.fixture
def emulator() -> str:
    found = shutil.which(EMULATOR)
    if not found:
        (pytest.fail if is_required() else pytest.skip)(f"there is no {EMULATOR}: install qemu-user")
    return found


def find_approximate(path: Path) -> list[str]:
    argv = ["objdump", "--disassemble", "--no-show-raw-insn", str(path)]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [line for line in text.splitlines() if APPROXIMATE.search(line)]


def test_no_instruction_is_approximate() -> None:
    assert not find_approximate(library.find().path)


@pytest.mark.parametrize(("processor", "maker"), [("EPYC-Milan", "AuthenticAMD"), ("Haswell", "GenuineIntel")])
def test_an_emulated_processor_gives_the_same_bits(emulator: str, tmp_path: Path, processor: str, maker: str) -> None:
    source, vendor = tmp_path / "vendor.cpp", tmp_path / "vendor"
    source.write_text(VENDOR)
    subprocess.run([library.find_compiler(), "-static", source, "-o", vendor], check=True)
    emulated = [emulator, "-cpu", processor]
    assert subprocess.run([*emulated, vendor], capture_output=True, text=True, check=True).stdout.strip() == maker

    argv = [*emulated, sys.executable, "-I", "-c", library._CHECK, str(library.find().path), *list_instructions()]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    chosen, _, results = json.loads(done.stdout)
    assert chosen == "avx2"
    assert results == {"avx2": library.EXPECTED}


def test_a_processor_without_avx2_is_named(emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulator shows the flags of the machine around it, so that only the library itself can tell."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {emulator} -cpu SandyBridge {sys.executable} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(PreflightError, match="cannot be checked") as caught:
        library.check(library.find().path, origin="")
    assert caught.value.why == "this processor runs none of avx2, avx512, amx"


@pytest.mark.weekly
def test_an_emulated_processor_trains_the_same_weights(emulator: str, tmp_path: Path) -> None:
    """TensorFlow and NumPy see the other processor too, and choose their functions by it."""
    argv = [sys.executable, "-m", "train", "digits", "--depth", "10", "--kernels", "native", "--batch-size", "24"]
    argv += ["--steps", "3", "--threads", "2", "--progress", "plain"]
    digests = []
    for name, before in (("here", []), ("amd", [emulator, "-cpu", "EPYC-Milan"])):
        subprocess.run([*before, *argv, "--out", str(tmp_path / name)], capture_output=True, check=True)
        manifest = next((tmp_path / name).glob("*/manifest.json"))
        digests.append(json.loads(manifest.read_text())["weights_sha256"])
    assert digests[0] == digests[1]
