"""Compares the weights of the suite ``reproducible`` after some steps: by threads, instruction sets and processors.

    python -m benchmarks.training.bits --torch-python VENV/bin/python --emulate "qemu-x86_64 -cpu Haswell" --out FILE

Each candidate starts from the same weights in a fresh process each time, and has the digest of two threads to equal.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.training.run import Candidate, choose_python

AVX2: Final = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}
"""Variables that let PyTorch, oneDNN, MKL and NumPy do without AVX-512. Native kernels have a switch of their own."""


def list_settings(job: dict[str, Any], emulate: list[str]) -> dict[str, dict[str, Any]]:
    """Return what differs from two threads of this processor, by a name; the first only repeats them."""
    narrow: dict[str, Any] = {"variables": {**job.get("variables", {}), **AVX2}}
    if job.get("kernels") == "native":
        narrow["instructions"] = "avx2"
    found: dict[str, dict[str, Any]] = {"again": {}, "1 thread": {"threads": 1}, "4 threads": {"threads": 4}}
    found["AVX2"] = narrow
    if emulate:
        found["emulated"] = {"under": emulate}
    return found


def read_processor() -> dict[str, str]:
    """Return maker, family and model of the first core, as the kernel names them."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    named = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {name: named.get(name, "") for name in ("vendor_id", "cpu family", "model", "model name")}


def train(name: str, job: dict[str, Any], python: str, steps: int) -> dict[str, Any]:
    """Return the digest of the weights after some steps, and the seconds that it took. Raises SystemExit: it died."""
    began = time.monotonic()
    candidate = Candidate(name, job, python)
    try:
        for _ in range(steps):
            candidate.step()
        sha256 = candidate.ask("weights")["sha256"]
    finally:
        candidate.close()
    return {"sha256": sha256, "loss": candidate.steps[-1]["loss"], "seconds": round(time.monotonic() - began)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--torch-python", default="", help="Python with PyTorch, RepDL and scikit-learn")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--emulate", default="", help="command that runs a program on another processor")
    parser.add_argument("--only", default="", help="candidates whose names contain this")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    suite = yaml.safe_load((Path(__file__).parent / "suites.yaml").read_text(encoding="utf-8"))["reproducible"][0]
    results: dict[str, Any] = {"suite": "reproducible", "steps": options.steps, "emulated": options.emulate, "rows": []}
    results |= {"processor": read_processor(), "load": os.getloadavg()[0], "when": time.strftime("%Y-%m-%d %H:%M")}
    for name, job in suite["candidates"].items():
        python = choose_python(job, options.torch_python)
        if not python or options.only not in name:
            print(f"left out: {name}", file=sys.stderr)
            continue
        whole = {"threads": 2, **suite["common"], **job}
        row: dict[str, Any] = {"name": name, "2 threads": train(name, whole, python, options.steps)}
        for setting, change in list_settings(job, options.emulate.split()).items():
            row[setting] = train(name, whole | change, python, options.steps)
            row[setting]["equal"] = row[setting]["sha256"] == row["2 threads"]["sha256"]
            print(json.dumps({"name": name, setting: row[setting]}), flush=True)
        results["rows"].append(row)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
