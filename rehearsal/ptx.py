"""Compiles the training step with XLA without a GPU, and lists the registers and the memory of each kernel.

``python -m rehearsal.ptx [training arguments] --gpu t4``, run by a Python with TensorFlow's CUDA build. XLA
compiles ahead of time from a description of the device, and ptxas reports each kernel.

TensorFlow has no function for this: ``experimental_get_compiler_ir`` refuses variables without a device. So the step is
lowered for the host, and a small program (``deviceless/compile.cc``) passes it to the wheel's GPU compiler.

On a real GPU the result would differ: no algorithm is chosen by timing here, so convolutions and matrix products use
the defaults of cuDNN and cuBLAS, whose own kernels are not counted.
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rehearsal.kernels import CUDA, CUDNN, read_table
from rehearsal.library import find_tensorflow
from rehearsal.request import Device, choose_device, read_devices
from train.config.configuration import TrainConfig
from train.errors import CheckError, PreflightError
from train.system import output
from train.system.program import explain_errors

SOURCES: Final = Path(__file__).with_name("deviceless")
LIBRARIES: Final = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A kernel as ptxas reports it. Registers, spilled bytes and stack bytes are per thread, shared bytes per block."""

    name: str
    registers: int
    spilled: int
    shared: int
    stack: int


def lower_step(config: TrainConfig) -> bytes:
    import numpy as np
    import tensorflow as tf

    from train.model import formulation
    from train.step import training

    tf.random.set_seed(0)  # deterministic TensorFlow needs a seed where it draws numbers itself
    config = replace(config, jit=True, batch_size=config.batch_size or 64)
    current, rule = training.start(config, formulation.FOR_GPU)
    unit = np.ones(config.shape[-1])
    built = training.make_train_step(current, rule, config, unit, unit, form=formulation.FOR_GPU)
    images = tf.TensorSpec((config.batch_size, *config.shape), tf.uint8)
    labels, rate = tf.TensorSpec((config.batch_size,), tf.int32), tf.TensorSpec((), tf.float32)
    lower = tf.function(built, jit_compile=True, autograph=False).experimental_get_compiler_ir(images, labels, rate)
    result: bytes = lower(stage="hlo_serialized", device_name="/job:localhost/replica:0/task:0/device:CPU:0")
    return result


def describe_target(device: Device) -> str:
    """Return a device as XLA's ``GpuTargetConfigProto``. Limits that no table has are the T4's or usual ones."""
    major, minor = device.capability
    return (
        f"gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 "
        f"shared_memory_per_core: {max(device.shared, 65536)} threads_per_core_limit: {device.threads} "
        f"core_count: {device.multiprocessors} fpus_per_core: 64 block_dim_limit_x: 2147483647 "
        f"block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 320064000000 l2_cache_size: 4194304 "
        f"clock_rate_ghz: 1.59 device_memory_size: {device.memory} shared_memory_per_block_optin: {device.shared} "
        f"cuda_compute_capability {{ major: {major} minor: {minor} }} registers_per_core_limit: 65536 "
        f"registers_per_block_limit: 65536 }} "
        f"dnn_version_info {{ major: {CUDNN[0]} minor: {CUDNN[1]} }} "
        f'platform_name: "CUDA" device_description_str: "{device.name}"'
    )


def build_compiler(tensorflow: Path, cache: Path) -> Path:
    """Compile the small program unless the cache has it. It takes half a minute of one core."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if not compiler:
        raise PreflightError(
            "there is no C++ compiler", remedy="install one (Debian: apt-get install g++), or name it by CXX"
        )
    state = hashlib.sha256(str(tensorflow).encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        state.update(path.read_bytes())
    program = cache / f"compile-{state.hexdigest()[:16]}"
    if program.exists():
        return program
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as work:
        built = Path(work) / "compile"
        includes = ["-I", str(SOURCES), "-isystem", str(tensorflow / "include")]
        libraries = ["-L", str(tensorflow), *(f"-l:{name}" for name in LIBRARIES), f"-Wl,-rpath,{tensorflow}"]
        options = ["-std=c++17", "-w", "-D_GLIBCXX_USE_CXX11_ABI=1", "-Wl,--allow-shlib-undefined"]
        command = [compiler, *options, *includes, str(SOURCES / "compile.cc"), "-o", str(built), *libraries]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PreflightError(
                "the program that calls TensorFlow's GPU compiler cannot be compiled",
                why="\n    ".join(done.stderr.strip().splitlines()[:4]),
                remedy=f"it is written for the headers of tensorflow {read_table().version}",
            )
        built.rename(program)
    return program


def find_assembler(tensorflow: Path) -> Path:
    """Find the folder with ``bin/ptxas`` and ``nvvm``: that of the wheel, else that on PATH."""
    beside = tensorflow.parent / "nvidia" / "cuda_nvcc"
    assembler = shutil.which("ptxas")
    for folder in (beside, *([Path(assembler).parents[1]] if assembler else [])):
        if (folder / "bin" / "ptxas").is_file():
            return folder
    raise PreflightError("there is no ptxas", remedy=f"pip install 'nvidia-cuda-nvcc-cu12=={CUDA[0]}.{CUDA[1]}.*'")


def compile_step(hlo: bytes, device: Device, cache: Path) -> list[CompiledKernel]:
    """Compile HLO for a device, and return its kernels, sorted by name.

    Raises a PreflightError if a tool is missing, and a CheckError if XLA or ptxas fails.
    """
    tensorflow = find_tensorflow()
    program, cuda = build_compiler(tensorflow, cache), find_assembler(tensorflow)
    with tempfile.TemporaryDirectory(prefix="ptx-") as work:
        target, module = Path(work) / "target.pbtxt", Path(work) / "step.hlo.pb"
        target.write_text(describe_target(device), encoding="utf-8")
        module.write_bytes(hlo)
        flags = f"--xla_dump_to={work} --xla_gpu_autotune_level=0 --xla_gpu_cuda_data_dir={cuda}"
        environment = {**os.environ, "XLA_FLAGS": flags, "PATH": f"{cuda / 'bin'}:{os.environ.get('PATH', '')}"}
        _run([str(program), str(target), str(module)], "XLA cannot compile the step", environment)
        texts = sorted(Path(work).glob("*.ptx"))
        if not texts:
            raise CheckError("XLA wrote no PTX")
        major, minor = device.capability
        command = [str(cuda / "bin" / "ptxas"), "-v", f"-arch=sm_{major}{minor}", "-o", os.devnull]
        outputs = [_run([*command, str(text)], "ptxas cannot assemble the step's PTX", environment) for text in texts]
    return sorted((kernel for each in outputs for kernel in read_usage(each)), key=lambda kernel: kernel.name)


def _run(command: Sequence[str], problem: str, environment: dict[str, str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise CheckError(problem, why="\n    ".join(done.stderr.strip().splitlines()[-3:]))
    return done.stderr


_ENTRY: Final = re.compile(r"Compiling entry function '([^']+)'")
_FRAME: Final = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_USED: Final = re.compile(r"Used (\d+) registers")
_SHARED: Final = re.compile(r"(\d+) bytes smem")


def read_usage(text: str) -> list[CompiledKernel]:
    kernels = []
    for part in re.split(r"(?=ptxas info\s*: Compiling entry function)", text):
        entry, used = _ENTRY.search(part), _USED.search(part)
        if entry and used:
            frame, shared = _FRAME.search(part), _SHARED.search(part)
            kernels.append(
                CompiledKernel(
                    name=entry[1],
                    registers=int(used[1]),
                    spilled=int(frame[2]) if frame else 0,
                    shared=int(shared[1]) if shared else 0,
                    stack=int(frame[1]) if frame else 0,
                )
            )
    return kernels


def summarize(kernels: Sequence[CompiledKernel]) -> dict[str, Any]:
    return {
        "kernels": len(kernels),
        "spilling": sum(1 for kernel in kernels if kernel.spilled),
        "most_registers": max((kernel.registers for kernel in kernels), default=0),
        "most_shared": max((kernel.shared for kernel in kernels), default=0),
    }


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal.ptx",
        usage="%(prog)s DATASET [options of python -m train] [options]",
        description="Compile the training step by XLA for a GPU that is not there, and print the registers, shared "
        "memory and spilled bytes of each kernel. Kernels inside cuDNN and cuBLAS are not counted. It needs "
        "TensorFlow's CUDA build, ptxas and a C++ compiler.",
        epilog="Options of the training job: python -m train --help",
        allow_abbrev=False,
    )
    parser.add_argument("--gpu", default="t4", metavar="NAME", help=f"{', '.join(read_devices())}; default t4")
    parser.add_argument(
        "--library-cache",
        default="~/.cache/toolkit/rehearsal",
        metavar="DIR",
        help="where the compiled program is kept; default %(default)s",
    )
    parser.add_argument("--json", action="store_true", help="print the kernels as one JSON object")
    return parser


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    from train import cli
    from train.step import runtime

    own, passed_on = make_parser().parse_known_args(argv)
    device, config = choose_device(own.gpu), cli.parse(passed_on)
    find_tensorflow()
    runtime.prepare(runtime.choose_threads(config, None))
    kernels = compile_step(lower_step(config), device, Path(own.library_cache).expanduser())
    summary = summarize(kernels)
    if own.json:
        output.show_json({"gpu": own.gpu, **summary, "list": [asdict(kernel) for kernel in kernels]})
        return 0
    output.show(f"{'registers':>9} {'shared B':>8} {'spilled B':>9}  kernel")
    for kernel in kernels:
        output.show(f"{kernel.registers:9} {kernel.shared:8} {kernel.spilled:9}  {kernel.name}")
    output.show(
        f"{config.model} {config.memory} {config.precision} for {own.gpu}: {summary['kernels']} kernels of XLA's own, "
        f"{summary['spilling']} spill registers; at most {summary['most_registers']} registers a thread, "
        f"{summary['most_shared']} bytes of shared memory a block. Compiled without a device; not run."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
