"""Prove that the toolchain compiles for each compute capability asked, and write the evidence down.

Run in the stage ``toolchain-proof``, before Bazel: what fails here after seconds would fail there after hours.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gpu_rules

HERE = Path(__file__).parent
STANDARDS = ("c++17", "gnu++17")


class ProofError(Exception):
    """The toolchain does not do what is asked of it."""


def parse_capabilities(text: str) -> list[str]:
    """Return a list's architectures: ``7.5``, ``sm_75``, ``compute_75`` are ``75``. Raises ValueError."""
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        capability = gpu_rules.parse_capability(item)
        if not capability:
            raise ValueError(f"no compute capability: {item!r}; write 7.5, sm_75 or compute_75")
        found.append(capability.architecture)
    if not found:
        raise ValueError("no compute capability is asked for; set COMPUTE_CAPABILITIES, 7.5 for example")
    return list(dict.fromkeys(found))


def read_architecture(cubin: Path) -> int:
    try:
        return gpu_rules.read_cubin_architecture(cubin.read_bytes())
    except ValueError as error:
        raise ProofError(f"{cubin.name} is {error}") from error


def run(*argv: str | Path) -> str:
    done = subprocess.run([str(part) for part in argv], capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).splitlines()[:12])
        raise ProofError(f"{' '.join(str(part) for part in argv)}\n{words}")
    return done.stdout


def prove_capability(architecture: str, *, clang: str, cuda: Path, work: Path) -> dict[str, str]:
    """Compile one CUDA file for device and host, assemble it, and read the architecture back from the cubin."""
    unit, ptx, cubin = HERE / "device.cu", work / "device.ptx", work / "device.cubin"
    for standard in STANDARDS:
        common = ("-x", "cuda", f"--cuda-path={cuda}", f"--cuda-gpu-arch=sm_{architecture}", f"-std={standard}", "-O2")
        quiet = ("-Wno-unknown-cuda-version", "-Werror")
        run(clang, *common, *quiet, "--cuda-host-only", "-c", unit, "-o", work / "host.o")
        run(clang, *common, *quiet, "--cuda-device-only", "-S", unit, "-o", ptx)
        run(cuda / "bin" / "ptxas", f"--gpu-name=sm_{architecture}", ptx, f"--output-file={cubin}")
        read = read_architecture(cubin)
        if str(read) != architecture.rstrip("af"):
            raise ProofError(f"asked for sm_{architecture}, the cubin is for sm_{read}")
    return {"asked": f"sm_{architecture}", "cubin": f"sm_{read}"}


def prove_host(clang: str, gcc: str, work: Path) -> None:
    """Check that plain host code keeps ``numeric_limits<__float128>`` under both compilers."""
    for compiler in (clang, gcc):
        for standard in STANDARDS:
            run(compiler, f"-std={standard}", "-Werror", HERE / "host.cc", "-o", work / "host")


def read_version(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise ProofError(f"no version in: {text}")
    return found[1]


def describe(clang: str, gcc: str, cuda: Path) -> dict[str, str]:
    return {
        "clang": run(clang, "-dumpversion").strip(),
        "lld": read_version(r"LLD (\d+\.\d+\.\d+)", run(clang.replace("clang++", "ld.lld"), "--version")),
        "libstdcxx": run(gcc, "-dumpfullversion").strip(),
        "glibc": run("getconf", "GNU_LIBC_VERSION").split()[-1],
        "ptxas": read_version(r"V(\d+\.\d+\.\d+)", run(cuda / "bin" / "ptxas", "--version")),
        "cuda": os.environ["CUDA_VERSION"],
    }


def main(report: Path) -> int:
    """Prove everything, print one line each and write ``report``. Exit codes: 0 proven, 2 usage, 7 not proven."""
    clang, gcc, cuda = f"clang++-{os.environ['LLVM_VERSION']}", "g++-14", Path("/opt/cuda")
    try:
        architectures = parse_capabilities(os.environ["COMPUTE_CAPABILITIES"])
    except ValueError as error:
        print(f"toolchain: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        try:
            prove_host(clang, gcc, work)
            print("toolchain: host code keeps numeric_limits<__float128>")
            proven = []
            for architecture in architectures:
                proven.append(prove_capability(architecture, clang=clang, cuda=cuda, work=work))
                print(f"toolchain: sm_{architecture} compiles for host and device, and assembles")
            evidence = {"schema": 1, "versions": describe(clang, gcc, cuda), "capabilities": proven}
        except ProofError as error:
            print(f"toolchain: not proven\n{error}", file=sys.stderr)
            print("  try: bazel_patches/README.md for __float128; `toolkit matrix` for capabilities", file=sys.stderr)
            return 7
    report.write_text(json.dumps(evidence, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
