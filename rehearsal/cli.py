"""Rehearses a training job: ``python -m rehearsal DATASET [options of the training job] --gpu t4``."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rehearsal.request import SYNTHETIC, Request, choose_device, read_devices, register_synthetic
from train.cli import parse
from train.errors import UsageError
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
    from rehearsal import audit, launch, library, report

    tensorflow = library.find_tensorflow()
    compiled = library.build(tensorflow, options.cache)
    with audit.running(options.request) as finish:
        record = launch.run(options.request, compiled, tensorflow)
        return report.make(options.request, record | {"audit": finish()})


@explain_errors
def main(argv: Sequence[str] | None = None) -> int:
    options = read(sys.argv[1:] if argv is None else argv)
    found = rehearse(options)
    output.show(json.dumps(found.as_dict(), indent=2) if options.json else found.as_text())
    return 7 if found.findings else 0
