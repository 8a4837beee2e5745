"""Prove for linux/arm64 what ``prove.py`` proves for the machine that it runs on: compile there, load under QEMU.

Run in the stage ``cross-proof``, on a machine of linux/amd64. Headers and libraries are those for aarch64; clang, lld,
ptxas and libdevice are those of this machine. The device code is compiled by ``prove.py`` itself.
"""

import json
import os
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fatbin
import prove
from prove import ProofError, run

HERE = Path(__file__).parent
PLATFORM = "linux/arm64"
TRIPLE = "aarch64-linux-gnu"
SYSTEM = Path("/usr") / TRIPLE
"""The C library for aarch64, where QEMU looks first."""
EM_AARCH64 = 183
"""ELF machine number of aarch64."""
ANSWERS = {"35": "the driver is insufficient", "100": "there is no device"}
"""What the CUDA runtime says of a launch where no GPU is."""


def require_aarch64(*paths: Path) -> None:
    """Raises ProofError: a file is not an ELF file for aarch64."""
    for path in paths:
        header = path.read_bytes()[:20]
        machine = struct.unpack_from("<H", header, 18)[0] if len(header) == 20 and header[:4] == b"\x7fELF" else None
        if machine != EM_AARCH64:
            what = "no ELF file" if machine is None else f"for ELF machine {machine}"
            raise ProofError(f"{path.name} is {what}, not for ELF machine {EM_AARCH64} (aarch64)")


@dataclass(frozen=True, kw_only=True)
class CrossToolchain(prove.Toolchain):
    @property
    def clang(self) -> str:
        """The name by which clang compiles for aarch64: it takes the target from its name."""
        return f"{TRIPLE}-{super().clang}"

    def emulate(self, program: Path, *arguments: str | Path) -> str:
        """Run a program for aarch64. Raises ProofError: it is for another machine, or fails."""
        require_aarch64(program)
        return run("qemu-aarch64", "-L", SYSTEM, program, *arguments)


@contextmanager
def make_folder(path: Path) -> Iterator[Path]:
    """Give a folder, and remove it at the end.

    It has the same name each time: the name is in the flags, by which ``prove.py`` finds what was compiled before.
    """
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def prove_host(toolchain: CrossToolchain) -> None:
    """Compile plain host code by both compilers, and run it."""
    for standard in prove.STANDARDS:
        for compiler in (toolchain.clang, toolchain.gcc):
            program = toolchain.work / "host"
            run(compiler, f"-std={standard}", "-Werror", HERE / "host.cc", "-o", program)
            toolchain.emulate(program)


def prove_library(toolchain: CrossToolchain, cubins: Sequence[tuple[str, Path]]) -> str:
    """Link the host code with all cubins for aarch64, load it under QEMU, and read the cubins out.

    Return the version of the C library with which it was loaded.
    """
    work = toolchain.work
    image, unit, library, loader = (work / name for name in ("kernels.fatbin", "kernels.o", "libkernels.so", "load"))
    contents = [path.read_bytes() for _, path in cubins]
    image.write_bytes(
        fatbin.pack([(int(name.rstrip("af")), content) for (name, _), content in zip(cubins, contents, strict=True)])
    )
    host = ["--cuda-host-only", f"--cuda-gpu-arch=sm_{cubins[0][0]}", "-Xclang", "-fcuda-include-gpubinary"]
    flags = [*prove.list_flags(toolchain), *host, "-Xclang", image]
    run(toolchain.clang, *flags, "-c", prove.HERE / "kernels.cu", "-o", unit)
    runtime = prove.PARTS / "cuda_runtime/lib"
    require_aarch64(unit, runtime / "libcudart.so.12")
    script = f"-Wl,--version-script={prove.HERE / 'kernels.lds'}"
    linker = ["-shared", "-fuse-ld=lld", script, f"-Wl,-rpath={runtime}", f"-L{runtime}", "-l:libcudart.so.12"]
    run(toolchain.clang, *linker, unit, "-o", library)
    require_aarch64(library)
    run(toolchain.clang, "-fuse-ld=lld", HERE / "load.cc", "-o", loader)
    glibc = check_answer(toolchain.emulate(loader, library))
    exported = run(toolchain.name("llvm-nm"), "--dynamic", "--defined-only", "--format=just-symbols", library)
    section = work / "section"
    run(toolchain.name("llvm-objcopy"), f"--dump-section=.nv_fatbin={section}", library, work / "copy.so")
    prove.check_library(exported.split(), section.read_bytes(), contents)
    return glibc


def check_answer(said: str) -> str:
    """Return the version of the C library out of what ``load.cc`` prints. Raises ProofError: CUDA answers otherwise."""
    glibc, _, answer = said.strip().partition(" ")
    if answer not in ANSWERS:
        known = " or ".join(f"{number} ({words})" for number, words in ANSWERS.items())
        raise ProofError(f"the library is loaded, and its launch is answered by {answer or 'nothing'}, not {known}")
    return glibc


def prove_capabilities(
    toolchain: CrossToolchain, architectures: Iterable[str], failed: dict[str, str] | None
) -> list[tuple[str, Path]]:
    """Return the cubins. One that fails is written into ``failed``; without that, it raises ProofError."""
    cubins = []
    for architecture in architectures:
        try:
            cubins.append((architecture, prove.prove_capability(toolchain, architecture)))
            print(f"toolchain: sm_{architecture} compiles beside host code for aarch64, and assembles")
        except ProofError as error:
            if failed is None:
                raise
            failed[f"sm_{architecture}"] = prove.shorten(str(error))
            print(f"toolchain: sm_{architecture} is not proven: {failed[f'sm_{architecture}']}")
    return cubins


def main(report: Path) -> int:
    """Prove everything, print one line each and write ``report``. Exit codes and variables are those of ``prove.py``:
    0 proven, 2 usage, 7 not proven.
    """
    try:
        architectures = prove.parse_capabilities(os.environ["COMPUTE_CAPABILITIES"])
    except ValueError as error:
        print(f"toolchain: {error}", file=sys.stderr)
        return 2
    all_of_them = bool(os.environ.get("PROOF_REPORT_ALL"))
    with make_folder(report.parent / "work") as folder:
        toolchain = CrossToolchain(
            llvm=os.environ["LLVM_VERSION"],
            gcc=f"{TRIPLE}-g++-{os.environ['GCC_VERSION']}",
            work=folder,
            tensorflow=os.environ["TENSORFLOW_VERSION"],
            kept=prove.KEPT if all_of_them else None,
        )
        failed: dict[str, str] = {}
        try:
            prove_host(toolchain)
            print("toolchain: host code for aarch64 compiles, and runs under QEMU")
            versions = prove.describe(toolchain)
            cubins = prove_capabilities(toolchain, architectures, failed if all_of_them else None)
            if cubins:
                versions["glibc"] = prove_library(toolchain, cubins)
                print("toolchain: the library for aarch64 links, loads under QEMU, calls CUDA's runtime and holds all")
            versions["qemu"] = prove.read_version(r"version (\d+\.\d+\.\d+)", run("qemu-aarch64", "--version"))
            proven = [{"asked": f"sm_{name}", "cubin": f"sm_{prove.read_architecture(path)}"} for name, path in cubins]
        except ProofError as error:
            print(f"toolchain: not proven for {PLATFORM}\n{error}", file=sys.stderr)
            print("  try: `toolkit matrix --grid --platform linux/arm64` for what was proven", file=sys.stderr)
            return 7
    evidence = {"schema": 2, "platform": PLATFORM, "versions": versions, "capabilities": proven, "failed": failed}
    report.write_text(json.dumps(evidence, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
