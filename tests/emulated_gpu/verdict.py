"""Judges the record of a job on the emulated GPU by what a step may cost there."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

MOST: Final = {"to device": 1, "to host": 1, "waits": 1}
"""The most copies in each direction and waits for the device that a step may have."""

GROWTH: Final = 65536
"""Bytes by which the memory in use may grow from step to step."""

LAUNCHES: Final = {
    ("bc-22-12", "plain"): 600,
    ("bc-22-12", "recompute"): 600,
    ("bc-22-12", "shared"): 600,
    ("bc-100-12", "plain"): 900,
    ("bc-100-12", "recompute"): 1050,
    ("bc-100-12", "shared"): 1100,
}
"""Kernel launches of a step with 64 images without XLA, by model and memory. A CUDA graph is one launch."""

CONTAINER: Final = "fat binary: "
"""Prefix of the modules that come with TensorFlow; those that XLA makes at run time have none."""


def find_faults(record: Mapping[str, Any]) -> dict[str, str]:
    """Return what the job did that it should not do on a GPU, by kind."""
    return dict([*_check_code(record), *_check_end(record), *_check_steps(record), *_check_memory(record)])


def _check_code(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    binaries = record.get("counts", {}).get("fat binary", {})
    if set(binaries) == {"none"}:
        yield "no device code", f"none of the {binaries['none']} fat binaries has code for the device"
    modules = record.get("counts", {}).get("module", {})
    if "elementwise" in record:
        loaded = [name for name in modules if name.startswith(CONTAINER)]
        left = [name for name in (*binaries, *loaded) if name.removeprefix(CONTAINER).startswith("PTX")]
        if left or not loaded:
            yield "PTX", f"left to the driver's compiler: {', '.join(left) or 'nothing was loaded'}"


def _check_end(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if error := record.get("error"):
        yield "error", f"{error['kind']} at {error['node']}: {error['message']}"
    for kind in ("on_host", "crossings"):
        if record.get(kind):
            yield kind, "; ".join(record[kind])


def _check_steps(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    config = record["config"]
    for step in record.get("steps", []):
        counts = step["counts"]
        launches = Counter(counts.get("launch", {})) + Counter(counts.get("graph launch", {}))
        found = {"waits": sum(counts.get("wait", {}).values()), "launches": sum(launches.values())}
        copies = counts.get("copy", {}).items()
        for direction in ("to device", "to host"):
            found[direction] = sum(count for name, count in copies if name.startswith(direction))
        limits = dict(MOST)
        if config["batch_size"] == 64 and not config["jit"] and (config["model"], config["memory"]) in LAUNCHES:
            limits["launches"] = LAUNCHES[config["model"], config["memory"]]
        for name, limit in limits.items():
            if found[name] > limit:
                yield name, f"a step makes {found[name]}; the limit is {limit}"


def _check_memory(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    in_use = [step["memory"]["current"] for step in record.get("steps", [])]
    rises = [later - earlier for earlier, later in pairwise(in_use)]
    if rises and min(rises) > GROWTH:
        yield "growth", f"the memory in use grows with each step, by {min(rises):,} bytes and more"
