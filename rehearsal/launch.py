import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rehearsal.request import Device, Request
from train.record.reader import MARK

PROGRAM: Final = ("-P", "-m", "rehearsal.job")

_TELLING: Final = re.compile(
    r"Ignoring visible gpu|not built with CUDA kernel binaries|Cannot dlopen|failed call to cuInit|insufficient|"
    r"CUDA_ERROR|cudaError|No kernel image|ran out of memory|Cannot register|Could not load dynamic"
)
"""Pattern of the lines in TensorFlow's log that are about the device."""

_FATAL: Final = re.compile(r"^F\d{4} |^\S+ \S+: F |Check failed")
"""Pattern of the lines that TensorFlow logs when it aborts."""


def run(request: Request, library: Path, tensorflow: Path, *, program: Sequence[str] = PROGRAM) -> dict[str, Any]:
    """Run a rehearsal; returns its record and ``log``, with an error of kind ``Crash`` if the process failed."""
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        source, target, log = (Path(folder) / name for name in ("request.json", "record.json", "log.txt"))
        source.write_text(request.write(), encoding="utf-8")
        environment = make_environment(request.device, library, tensorflow)
        with log.open("w", encoding="utf-8") as stream:
            code = _run_to_end([sys.executable, *program, str(source), str(target)], environment, stream)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        record = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
        if code:
            record["error"] = _describe_crash(code, lines)
    return record | {"log": list(dict.fromkeys(_strip(line) for line in lines if _TELLING.search(line)))}


def make_environment(device: Device, library: Path, tensorflow: Path) -> dict[str, str]:
    major, minor = device.capability
    variables = {
        **os.environ,
        "NULLGPU_NAME": device.name.removesuffix(f" {MARK}"),
        "NULLGPU_CAPABILITY": str(10 * major + minor),
        "NULLGPU_MULTIPROCESSORS": str(device.multiprocessors),
        "NULLGPU_MEMORY": str(device.memory),
        "NULLGPU_SHARED": str(device.shared),
        "NULLGPU_THREADS": str(device.threads),
        "NULLGPU_BLOCKS": str(device.blocks),
        "NULLGPU_DRIVER": str(1000 * device.driver[0] + 10 * device.driver[1]),
        "NULLGPU_COUNT": str(device.count),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(library), os.environ.get("LD_LIBRARY_PATH")])),
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")])),
    }
    # XLA takes ptxas and libdevice from this folder. The first ptxas on PATH may belong to another CUDA.
    toolkit = tensorflow.parent / "nvidia" / "cuda_nvcc"
    if toolkit.is_dir():
        flags = [os.environ.get("XLA_FLAGS"), f"--xla_gpu_cuda_data_dir={toolkit}"]
        variables["XLA_FLAGS"] = " ".join(filter(None, flags))
    variables.pop("CUDA_VISIBLE_DEVICES", None)
    return variables


def _run_to_end(command: list[str], environment: dict[str, str], log: Any) -> int:
    # In its own session, so that Ctrl-C reaches only this process, which then ends the job.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    try:
        return process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise


def _describe_crash(code: int, lines: list[str]) -> dict[str, str]:
    end = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    fatal = next((index for index, line in enumerate(lines) if _FATAL.search(line)), None)
    words = lines[-6:] if fatal is None else [_strip(lines[fatal]), *lines[fatal + 1 : fatal + 2]]
    return {"kind": "Crash", "message": f"{end}: {' '.join(words)}", "node": "", "operation": ""}


def _strip(line: str) -> str:
    return re.sub(r"^(\d{4}-\d\d-\d\d \S+: )?[IWEF]?\d* ?(\S+:\S+ +\d+ )?", "", line).strip()
