"""Native kernels on 64-bit ARM: cross compiled, and run by QEMU, which computes by IEEE 754 in software.

What it cannot show is how fast they are, and an order of memory that x86 does not have.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.makers.native_runs import PRECISIONS
from tests.native import is_required
from tests.unit.train import runs
from train.native import library

ROOT = Path(__file__).parents[4]
PYTHON = os.environ.get("TOOLKIT_ARM_PYTHON", "")
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
APPROXIMATE = re.compile(r"\tf?u?r(?:ecp|sqrt)[esx]\b|\tbf(?:dot|mmla|mlal[bt])\b")
LOADER = """
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
int main(int, char **words) {
  void *library = dlopen(words[1], RTLD_LAZY);
  if (library == nullptr) return puts(dlerror()), 1;
  reinterpret_cast<void (*)(int)>(dlsym(library, "toolkit_set_threads"))(atoi(words[2]));
  puts(reinterpret_cast<const char *(*)(const char *)>(dlsym(library, "toolkit_check"))("neon"));
}
"""
SPECIAL = (
    *(0, 1, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000),  # 0, denormals, the least normal
    *(0x1F800000, 0x20000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x7F7FFFFF),
    *(0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x7F7F7FFF, 0x7F7F8000, 0x00018000),  # halfway for bfloat16
    *(0x7F800000, 0x7FC00000, 0x7F800001, 0x7FC12345),  # infinity, and no numbers
)
LEAST = 2.0**-126
SINGLE, FUSED = 8, 3  # operations on single numbers come first, and among them `multiply_add`
NEAR = 4096  # operands whose product or sum is next to the least normal number come last

Bits = npt.NDArray[np.uint32]
Operands = npt.NDArray[np.float32]


@pytest.fixture
def tools() -> None:
    for name, package in ((COMPILER, "g++-aarch64-linux-gnu"), (EMULATOR, "qemu-user")):
        if not shutil.which(name):
            (pytest.fail if is_required() else pytest.skip)(f"there is no {name}: install {package}")


def run_on_arm(*argv: str | Path, data: bytes = b"") -> bytes:
    # A processor without later extensions, and the folder where Debian has the C library for ARM.
    command = [EMULATOR, "-cpu", "cortex-a53", "-L", "/usr/aarch64-linux-gnu", *argv]
    return subprocess.run(command, input=data, capture_output=True, check=True).stdout


def check_library(folder: Path) -> set[str]:
    """Build the library and return what its check says, with one thread and with several."""
    (folder / "loader.cpp").write_text(LOADER)
    subprocess.run([COMPILER, folder / "loader.cpp", "-o", folder / "loader"], check=True)
    built = library.compile_library(COMPILER, folder)
    return {run_on_arm(folder / "loader", built, threads).decode().strip() for threads in ("1", "3")}


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_the_library_gives_the_bits_of_x86(tmp_path: Path) -> None:
    assert check_library(tmp_path) == {library.EXPECTED}
    argv = ["aarch64-linux-gnu-objdump", "--disassemble", "--no-show-raw-insn", tmp_path / "kernels.so"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "\tfmla\t" in text
    assert not APPROXIMATE.search(text)


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_its_check_notices_a_compiler_that_orders_sums_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-ffast-math"))
    assert library.EXPECTED not in check_library(tmp_path)


@pytest.mark.weekly
@pytest.mark.skipif(not PYTHON, reason="TOOLKIT_ARM_PYTHON names no Python for ARM with TensorFlow")
@pytest.mark.usefixtures("tools")
@PRECISIONS
def test_a_run_has_the_weights_of_x86(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    environment = {**os.environ, library.VARIABLE: str(library.compile_library(COMPILER, tmp_path))}
    argv = [PYTHON, "-m", "train", *runs.ARGUMENTS, *options, "--out", tmp_path / "runs"]
    subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, check=True)
    manifest = json.loads(next((tmp_path / "runs").glob("*/manifest.json")).read_text())
    assert manifest["environment"]["instructions"] == "neon"
    assert manifest["weights_sha256"] == expected


def make_operands() -> Operands:
    """Return three operands: all combinations of special numbers, any bits, and what is next to the least number."""
    numbers = np.random.default_rng(3)
    special = np.array([*SPECIAL, *(bits | 0x80000000 for bits in SPECIAL)], np.uint32)
    combined = np.stack(np.meshgrid(special, special, special)).reshape(3, -1)
    any_bits = numbers.integers(0, 2**32, (3, -combined.shape[1] % 1024 + 8192), np.uint32)
    return np.concatenate([combined.view("f"), any_bits.view("f"), draw_near(numbers)], axis=1)


def draw_near(numbers: np.random.Generator) -> Operands:
    """Return operands with x * y + z next to the least normal number, by its rounding; z is 0 in the first half."""
    fraction = numbers.integers(2**23, 2**24, NEAR)
    exponent = numbers.integers(-60, 61, NEAR)
    x = np.ldexp(fraction, -87 + exponent) * numbers.choice([-1, 1], NEAR)
    y = np.ldexp(2**47 // fraction, -86 - exponent)
    y[NEAR // 2 :] *= numbers.uniform(2, 30, NEAR // 2)
    x, y = x.astype("f"), y.astype("f")
    product = x.astype("d") * y.astype("d")
    z = np.sign(product) * LEAST - product
    z[: NEAR // 2] = 0
    return np.stack([x, y, z.astype("f")])


def compute(folder: Path, operands: Operands, *, arm: bool, source: Path = library.SOURCE) -> list[Bits]:
    """Return what the program computes: bits that are moved, and results of arithmetic, NaN as one number."""
    folder.mkdir()
    compiler = COMPILER if arm else library.find_compiler()
    flags = library.PROCESSORS[library.find_target(compiler)].flags
    program = [Path(__file__).with_name("arithmetic.cpp"), "-I", source, "-o", folder / "program"]
    flags = (*library.FLAGS, *flags, f"-DMACHINE={'NEON' if arm else 'AVX2'}")
    subprocess.run([compiler, *flags, *program], check=True)
    argv, data, count = [folder / "program", str(operands.shape[1])], operands.tobytes(), operands.shape[1]
    if arm:
        written = run_on_arm(*argv, data=data)
    else:
        written = subprocess.run(argv, input=data, capture_output=True, check=True).stdout
    moved, end = 26 * count, -48 * (count // 1024)
    floats, doubles = np.frombuffer(written[moved:end], np.float32), np.frombuffer(written[end:], np.float64)
    return [
        np.frombuffer(written[:moved], np.uint8),
        np.where(np.isnan(floats), np.float32(np.nan), floats).view(np.uint32),
        np.where(np.isnan(doubles), np.nan, doubles).view(np.uint64),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_each_operation_gives_the_bits_of_x86(tmp_path: Path) -> None:
    """An operation without a result by IEEE 754, such as 0 / 0, gives no number, with any sign and bits."""
    operands = make_operands()
    here, there = compute(tmp_path / "here", operands, arm=False), compute(tmp_path / "there", operands, arm=True)
    for one, other in zip(here, there, strict=True):
        assert len(one) > 100
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_arm_rounds_to_the_least_normal_number_by_care_alone(tmp_path: Path) -> None:
    """Both flush to 0 what is too small, x86 after rounding and ARM before."""
    operands = make_operands()[:, -NEAR:]
    shutil.copytree(library.SOURCE, tmp_path / "source")
    header = tmp_path / "source" / "underflow.h"
    text = header.read_text()
    assert text.count("RAISED_LEAST = 0x1p-62F") == 1
    header.write_text(text.replace("RAISED_LEAST = 0x1p-62F", 'RAISED_LEAST = __builtin_nanf("")'))  # is nowhere found
    here = compute(tmp_path / "here", operands, arm=False)
    there = compute(tmp_path / "there", operands, arm=True, source=tmp_path / "source")
    assert (here[0].tobytes(), here[2].tobytes()) == (there[0].tobytes(), there[2].tobytes())

    one, other = (found[1][: SINGLE * NEAR].reshape(SINGLE, NEAR) for found in (here, there))
    differs = one != other
    assert {hex(bits) for bits in one[differs] & 0x7FFFFFFF} == {"0x800000"}
    assert {hex(bits) for bits in other[differs] & 0x7FFFFFFF} == {"0x0"}
    x, y, z = operands.astype("d")
    exact = abs(x * y + z)  # which float64 can hold
    rounds_up = (exact < LEAST) & (exact >= LEAST * (1 - 2.0**-25))
    assert 100 < np.count_nonzero(rounds_up) < NEAR // 2
    np.testing.assert_array_equal(differs[FUSED], rounds_up)
    assert [count > 100 for count in differs.sum(axis=1)] == [False, False, *[True] * 5, False], "products alone"
