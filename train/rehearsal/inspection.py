"""Runs the static audit of a rehearsed job, in a process that sees no GPU, neither a real nor an emulated one.

``python -m train.rehearsal.inspection`` reads a request from standard input and prints the reports of
``train.rehearsal.audit`` as JSON.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from train.rehearsal.request import Request

PROGRAM: Final = ("-P", "-m", "train.rehearsal.inspection")


@contextmanager
def running(request: Request, *, program: Sequence[str] = PROGRAM) -> Iterator[Callable[[], dict[str, Any]]]:
    """Start the audit, and yield a function that waits for its result; the process is ended with the block.

    The result has ``graphs``, a list of ``audit.Report`` as plain values, or ``error``. A job that XLA compiles as a
    whole has no graphs, because XLA generates kernels of its own. `program` is what the interpreter runs.
    """
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile("w+", encoding="utf-8") as source:
        source.write(request.write())
        source.seek(0)
        process = subprocess.Popen(
            [sys.executable, *program],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": path},
            start_new_session=True,  # a Ctrl-C ends it once, through us
        )

    def finish() -> dict[str, Any]:
        output, errors = process.communicate()
        if process.returncode:
            lines = errors.strip().splitlines()
            return {"error": lines[-1] if lines else f"exit code {process.returncode}"}
        return {"graphs": json.loads(output)}

    try:
        yield finish
    finally:
        process.kill()
        process.communicate()


def main() -> int:
    from train import runtime
    from train.rehearsal import audit

    config = Request.read(sys.stdin.read()).config
    runtime.prepare(runtime.choose_threads(config, None), tf32=config.tf32)
    reports = [] if config.jit else audit.audit_run(config)
    print(json.dumps([dataclasses.asdict(report) for report in reports]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
