"""Prove that the toolchain compiles TensorFlow's GPU headers for each compute capability asked, and write the evidence
down.

Run in the stage ``toolchain-proof``, before Bazel: what fails here after seconds would fail there after hours.
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fatbin
import gpu_rules

HERE = Path(__file__).parent
HEADERS = Path("/opt/headers")
"""The headers of TensorFlow's published wheel."""
PARTS = Path("/opt/cuda-parts/nvidia")
"""The CUDA release in separate folders, as in the repositories that Bazel downloads."""
CUDA = Path("/opt/cuda")
"""The same in one folder."""
LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
KEPT = Path("/var/cache/proof")
"""What was compiled in other proofs."""
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


def digest_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    llvm: str  # major version
    gcc: str  # name of g++
    work: Path  # folder for what the compilers write
    tensorflow: str  # version whose headers are compiled
    kept: Path | None = None  # folder of what was compiled before

    @property
    def clang(self) -> str:
        return self.name("clang++")

    def name(self, tool: str) -> str:
        return f"{tool}-{self.llvm}"

    def compile(self, source: Path, ptx: Path, *flags: str | Path) -> None:
        """Compile a file for a device, or take what the same compiler made of the same text with the same flags."""
        argv = [self.clang, *flags, "--cuda-device-only", source]
        if self.kept is None:
            run(*argv, "-S", "-o", ptx)
            return
        inputs = (run(*argv, "-E"), repr(argv), run(self.clang, "--version"), digest_file(CUDA / LIBDEVICE))
        kept = self.kept / hashlib.sha256("\0".join(inputs).encode()).hexdigest()
        if not kept.exists():
            run(*argv, "-S", "-o", ptx)
            shutil.copyfile(ptx, kept.with_suffix(f".{os.getpid()}"))
            kept.with_suffix(f".{os.getpid()}").rename(kept)
        shutil.copyfile(kept, ptx)

    def assemble(self, architecture: str, ptx: Path) -> Path:
        cubin = ptx.with_suffix(".cubin")
        run(CUDA / "bin" / "ptxas", f"--gpu-name=sm_{architecture}", ptx, f"--output-file={cubin}")
        read = read_architecture(cubin)
        if str(read) != architecture.rstrip("af"):
            raise ProofError(f"asked for sm_{architecture}, the cubin is for sm_{read}")
        return cubin


def prove_capability(toolchain: Toolchain, architecture: str) -> Path:
    """Compile CUDA files for a device, assemble them, and read the architecture back from the cubins.

    Return the cubin of TensorFlow's headers.
    """
    ptx = toolchain.work / f"device_{architecture}.ptx"
    for standard in STANDARDS:
        flags = list_plain_flags(architecture, standard)
        toolchain.compile(HERE / "device.cu", ptx, *flags)
        toolchain.assemble(architecture, ptx)
    kernels = toolchain.work / f"kernels_{architecture}.ptx"
    flags = [*list_flags(toolchain), f"--cuda-gpu-arch=sm_{architecture}", *list_features(toolchain, ptx.read_text())]
    toolchain.compile(HERE / "kernels.cu", kernels, *flags)
    return toolchain.assemble(architecture, kernels)


def list_plain_flags(architecture: str, standard: str) -> list[str | Path]:
    flags = ["-x", "cuda", f"--cuda-path={CUDA}", f"--cuda-gpu-arch=sm_{architecture}", f"-std={standard}"]
    return [*flags, "-O2", "-Wno-unknown-cuda-version", "-Werror"]


def list_flags(toolchain: Toolchain) -> list[str | Path]:
    """Return what compiles a kernel of TensorFlow by upstream's crosstool.

    The CUDA path is the repository of nvcc alone, and the headers of the others are system headers.
    """
    own = toolchain.work / "include"
    link = own / "third_party/gpus/cuda/include"
    if not link.exists():
        link.parent.mkdir(parents=True)
        link.symlink_to(CUDA / "include")
    parts = [PARTS / name / "include" for name in ("cuda_runtime", "cuda_cccl", "curand", "cuda_nvcc")]
    folders = [f"-isystem{path}" for path in (*parts, own, HERE / "missing", HEADERS)]
    flags = ["-x", "cuda", f"--cuda-path={PARTS / 'cuda_nvcc'}", "-std=c++17", "-O2", "-fPIC", "-w", *folders]
    return [*flags, "-DGOOGLE_CUDA=1", "-DEIGEN_USE_THREADS", "-Wno-unknown-cuda-version"]


def list_features(toolchain: Toolchain, ptx: str) -> list[str]:
    """Return how upstream's rules choose the version of PTX.

    Before 2.20 they leave it to clang, which then takes its newest. Since then they ask for the newest that both clang
    and ptxas know. Clang writes that one itself (``ptx``) where it sees the whole CUDA release.
    """
    if gpu_rules.read_numbers(toolchain.tensorflow) < (2, 20):
        return []
    return ["--cuda-feature=+ptx" + read_version(r"\.version (\d+\.\d+)", ptx).replace(".", "")]


def prove_library(toolchain: Toolchain, cubins: Sequence[tuple[str, Path]]) -> None:
    """Link the host code with all cubins as a library by lld and a version script, load it, and read the cubins out."""
    work = toolchain.work
    image, unit, library = work / "kernels.fatbin", work / "kernels.o", work / "libkernels.so"
    contents = [path.read_bytes() for _, path in cubins]
    image.write_bytes(
        fatbin.pack([(int(name.rstrip("af")), content) for (name, _), content in zip(cubins, contents, strict=True)])
    )
    host = ["--cuda-host-only", f"--cuda-gpu-arch=sm_{cubins[0][0]}", "-Xclang", "-fcuda-include-gpubinary"]
    run(toolchain.clang, *list_flags(toolchain), *host, "-Xclang", image, "-c", HERE / "kernels.cu", "-o", unit)
    runtime = find_runtime()
    linker = ["-shared", "-fuse-ld=lld", f"-Wl,--version-script={HERE / 'kernels.lds'}", f"-Wl,-rpath={runtime.parent}"]
    run(toolchain.clang, *linker, unit, runtime, "-o", library)
    ctypes.CDLL(str(library))
    exported = run(toolchain.name("llvm-nm"), "--dynamic", "--defined-only", "--format=just-symbols", library)
    section = work / "section"
    run(toolchain.name("llvm-objcopy"), f"--dump-section=.nv_fatbin={section}", library, work / "copy.so")
    check_library(exported.split(), section.read_bytes(), contents)


def find_runtime() -> Path:
    """Return the library of the CUDA runtime, whose name has the major version."""
    (library,) = (PARTS / "cuda_runtime/lib").glob("libcudart.so.*")
    return library


def check_library(exported: Sequence[str], section: bytes, cubins: Sequence[bytes]) -> None:
    """Raises ProofError: a library exports other symbols than its version script names, or holds other cubins."""
    if list(exported) != ["toolkit_add"]:
        raise ProofError(f"the library exports {', '.join(exported) or 'nothing'}, not what its version script names")
    try:
        found = fatbin.unpack(section)
    except ValueError as error:
        raise ProofError(f"the library holds {error}") from error
    # The packed ones are padded.
    if [image.rstrip(b"\0") for image in found] != [cubin.rstrip(b"\0") for cubin in cubins]:
        raise ProofError("the library does not hold the cubins that were put into it")


def prove_host(toolchain: Toolchain, architecture: str) -> None:
    """Check that host code keeps ``numeric_limits<__float128>``: plain code under both compilers, and that of a CUDA
    file, unless ``architecture`` is empty.
    """
    for standard in STANDARDS:
        for compiler in (toolchain.clang, toolchain.gcc):
            run(compiler, f"-std={standard}", "-Werror", HERE / "host.cc", "-o", toolchain.work / "host")
        if not architecture:
            continue
        flags = list_plain_flags(architecture, standard)
        run(toolchain.clang, *flags, "--cuda-host-only", "-c", HERE / "device.cu", "-o", toolchain.work / "host.o")


def read_version(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise ProofError(f"no version in: {text}")
    return found[1]


def prove_plain_library(toolchain: Toolchain) -> None:
    """Link plain code as a library by lld, and load it: what a wheel for processors needs of the toolchain."""
    library = toolchain.work / "libhost.so"
    run(toolchain.clang, "-shared", "-fPIC", "-fuse-ld=lld", HERE / "host.cc", "-o", library)
    ctypes.CDLL(str(library))


def describe(toolchain: Toolchain, *, cuda: bool = True) -> dict[str, str]:
    found = {
        "clang": run(toolchain.clang, "-dumpversion").strip(),
        "lld": read_version(r"LLD (\d+\.\d+\.\d+)", run(toolchain.name("ld.lld"), "--version")),
        "libstdcxx": run(toolchain.gcc, "-dumpfullversion").strip(),
        "glibc": run("getconf", "GNU_LIBC_VERSION").split()[-1],
        "tensorflow": toolchain.tensorflow,
    }
    if cuda:
        found["ptxas"] = read_version(r"V(\d+\.\d+\.\d+)", run(CUDA / "bin" / "ptxas", "--version"))
        found["cuda"] = os.environ["CUDA_VERSION"]
    return found


def main(report: Path) -> int:
    """Prove everything, print one line each and write ``report``. Exit codes: 0 proven, 2 usage, 7 not proven."""
    llvm, tensorflow = os.environ["LLVM_VERSION"], os.environ["TENSORFLOW_VERSION"]
    cuda = os.environ["DEVICE"] == "cuda"
    try:
        architectures = parse_capabilities(os.environ["COMPUTE_CAPABILITIES"]) if cuda else []
    except ValueError as error:
        print(f"toolchain: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        gcc = f"g++-{os.environ['GCC_VERSION']}"
        toolchain = Toolchain(llvm=llvm, gcc=gcc, work=Path(folder), tensorflow=tensorflow)
        cubins = []
        try:
            prove_host(toolchain, architectures[0] if cuda else "")
            print("toolchain: host code keeps numeric_limits<__float128>")
            for architecture in architectures:
                cubins.append((architecture, prove_capability(toolchain, architecture)))
                print(f"toolchain: sm_{architecture} compiles for host and device, and assembles")
            if cuda:
                prove_library(toolchain, cubins)
                print(
                    "toolchain: TensorFlow's GPU headers compile for the host; the library links, loads and holds all"
                )
            else:
                prove_plain_library(toolchain)
                print("toolchain: a library for processors links and loads")
            proven = [{"asked": f"sm_{name}", "cubin": f"sm_{read_architecture(path)}"} for name, path in cubins]
            evidence = {"schema": 2, "versions": describe(toolchain, cuda=cuda), "capabilities": proven}
        except ProofError as error:
            print(f"toolchain: not proven\n{error}", file=sys.stderr)
            print("  try: bazel_patches/README.md for __float128; `toolkit matrix` for capabilities", file=sys.stderr)
            return 7
    report.write_text(json.dumps(evidence, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
