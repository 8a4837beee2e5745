"""Rehearses a training job: ``python -m rehearsal DATASET [options of the training job] --gpu t4``."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rehearsal.request import SYNTHETIC, Device, Request, choose_device, read_devices, register_synthetic
from train.cli import parse
from train.errors import UsageError
from train.record.reader import MARK
from train.system import output
from train.system.program import explain_errors

if TYPE_CHECKING:
    from rehearsal.report import Report


@dataclass(frozen=True, kw_only=True)
class Options:
    request: Request
    cache: Path
    json: bool


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal",
        usage="%(prog)s DATASET [options of python -m train] [options]",
        description="Run the first steps of a training job on an emulated GPU: which operations have no GPU kernel, "
        "what TensorFlow refuses, what a step launches, copies and waits for, and how much memory it takes. Nothing "
        "is computed. Images are random bytes; DATASET gives their shape, and `synthetic` any shape.",
        allow_abbrev=False,
    )
    parser.add_argument("--gpu", default="t4", metavar="NAME", help=f"{', '.join(read_devices())}; default t4")
    parser.add_argument("--driver", default="", metavar="X.Y", help="newest CUDA version that the driver supports")
    parser.add_argument("--gpu-memory", type=float, default=0.0, metavar="GB", help="instead of the card's own")
    parser.add_argument("--capability", default="", metavar="X.Y", help="compute capability instead of the card's own")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="number of devices, 1 or 2")
    parser.add_argument("--shape", default="224x224x3", metavar="HxWxC", help="of the data set `synthetic`")
    parser.add_argument("--classes", type=int, default=1000, metavar="N", help="of the data set `synthetic`")
    parser.add_argument("--warmup", type=int, default=2, metavar="N", help="steps before the first that is counted")
    parser.add_argument("--measured", type=int, default=3, metavar="N", help="steps that are counted")
    parser.add_argument(
        "--find-batch", action=argparse.BooleanOptionalAction, default=True, help="find the largest batch that fits"
    )
    parser.add_argument(
        "--require-machine-code",
        action="store_true",
        help="run all elementwise operations too, and fail if a kernel of TensorFlow's own is left to PTX",
    )
    parser.add_argument("--library-cache", default="", metavar="DIR", help="where the compiled emulation is kept")
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    return parser


def read(argv: Sequence[str]) -> Options:
    own, passed_on = make_parser().parse_known_args(argv)
    if SYNTHETIC in passed_on:
        register_synthetic(own.shape, own.classes)
    config = parse(passed_on)
    if config.kernels == "native":
        raise UsageError("--kernels native is for CPUs, and a rehearsal is of a GPU", remedy="leave it out")
    config = replace(config, kernels="stock")
    if not config.batch_size:
        raise UsageError(
            "a rehearsal needs a batch size", remedy="give --batch-size a number; the report says how large one may be"
        )
    if own.warmup < 1 or own.measured < 2:
        raise UsageError("a rehearsal needs --warmup of at least 1 and --measured of at least 2")
    device = choose_device(own.gpu, driver=own.driver, memory=own.gpu_memory, capability=own.capability, count=own.gpus)
    is_synthetic = config.dataset == SYNTHETIC
    request = Request(
        config=config,
        device=device,
        warmup=own.warmup,
        measured=own.measured,
        find_batch=own.find_batch,
        machine_code=own.require_machine_code,
        shape=own.shape if is_synthetic else "",
        classes=own.classes,
    )
    return Options(request=request, cache=_choose_cache(own.library_cache), json=own.json)


def _choose_cache(given: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or f"{home}/toolkit/rehearsal").expanduser()


def rehearse(options: Options) -> "Report":
    # Imported here, because their packages are not needed to read a command line.
    from rehearsal import audit, library, report

    tensorflow = library.find_tensorflow()
    compiled = library.build(tensorflow, options.cache)
    with audit.running(options.request) as finish:
        record = run_job(options.request, compiled, tensorflow)
        return report.make(options.request, record | {"audit": finish()})


PROGRAM: Final = ("-P", "-m", "rehearsal.job")

_TELLING: Final = re.compile(
    r"Ignoring visible gpu|not built with CUDA kernel binaries|Cannot dlopen|failed call to cuInit|insufficient|"
    r"CUDA_ERROR|cudaError|No kernel image|ran out of memory|Cannot register|Could not load dynamic"
)
"""Pattern of the lines in TensorFlow's log that are about the device."""

_FATAL: Final = re.compile(r"^F\d{4} |^\S+ \S+: F |Check failed")
"""Pattern of the lines that TensorFlow logs when it aborts."""


def run_job(request: Request, library: Path, tensorflow: Path, *, program: Sequence[str] = PROGRAM) -> dict[str, Any]:
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


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    options = read(sys.argv[1:] if argv is None else argv)
    report = rehearse(options)
    output.show(json.dumps(report.as_dict(), indent=2) if options.json else report.as_text())
    return 7 if report.findings else 0
