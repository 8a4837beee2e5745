"""Estimates TensorFlow's build on a farm, on paper: ``python -m benchmarks.farm``; ``--measure`` measures the overhead.

Actions are handed to free slots in order, as Bazel does. Each takes its time on a core, and the overhead of an action
that was measured with the stand-in tree on justbuild. Meanwhile the inputs and outputs go over the client's line; the
slower of the two counts. A tail that one machine does alone (link, pack) follows. Queues of a busy farm, retries and
slow workers are left out.
"""

import heapq
import json
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "farm.json"

ACTIONS = 14_094
"""Of a CPU build of 2.17.1 (tensorflow#68247); a CUDA build has more."""

CORE_HOURS = 4 * 14
"""The middle of 10 to 18 hours on four cores, which docker/README.md estimates from the limits of conda-forge."""

TAIL = 900
"""Seconds of link and pack on one machine: estimated."""

SPREAD = 1.2
"""Of the logarithm of an action's seconds: most take seconds, some many minutes. Estimated."""

OUTPUT = 1_000_000
"""Bytes of an action's outputs and of its inputs that are new to the farm, on average: estimated."""

SLOTS = (8, 32, 128)
LINES = (0.02, 0.1, 1)
"""The client's line in Gbit/s."""

PRICE = 0.0425
"""Dollars an hour of a slot, a virtual core with 2 GB: an eighth of 0.34, which AWS's guide to EC2 Auto Scaling ("Spot
price per unit hour example", read on 2026-11-23) names for c5.2xlarge on demand, with 8 of them and 16 GiB."""


@dataclass(frozen=True)
class Estimate:
    hours: float
    core_hours: float  # paid: all slots for the whole time


def simulate(slots: int, line: float, overhead: float, *, actions: int = ACTIONS) -> Estimate:
    """Estimate a build. ``line``: Gbit/s; ``overhead``: seconds of an action besides its work and its bytes."""
    dice = random.Random(1)  # noqa: S311
    weights = [dice.lognormvariate(0, SPREAD) for _ in range(actions)]
    scale = (CORE_HOURS * 3600 - TAIL) / sum(weights)
    free = [0.0] * slots
    for weight in weights:
        heapq.heapreplace(free, free[0] + overhead + weight * scale)
    hours = (max(*free, actions * OUTPUT * 8 / (line * 1e9)) + TAIL) / 3600
    return Estimate(hours=hours, core_hours=hours * slots)


def describe(overhead: float) -> str:
    lines = [
        f"{ACTIONS:,} actions, {CORE_HOURS} core hours, {ACTIONS * OUTPUT / 1e9:.0f} GB, {overhead:.2f} s an action"
    ]
    lines += [f"{'slots':>5} {'Gbit/s':>6} {'hours':>6} {'core hours':>10} {'dollars':>7}"]
    for slots in SLOTS:
        for line in LINES:
            found = simulate(slots, line, overhead)
            money = found.core_hours * PRICE
            lines.append(f"{slots:>5} {line:>6} {found.hours:>6.1f} {found.core_hours:>10.0f} {money:>7.2f}")
    return "\n".join(lines)


def measure(rounds: int = 2) -> dict[str, list[float]]:
    """Return seconds of Bazel's execution phase for an action, one at a time: here, and on justbuild beside it."""
    from tests.integration.docker import farms, stages
    from tests.integration.docker.test_wheel import change
    from tests.integration.workspace import Workspace

    found: dict[str, list[float]] = {"here": [], "farm": []}
    for _ in range(rounds):
        # A farm of its own, because a farm keeps what it did.
        with tempfile.TemporaryDirectory() as folder, farms.serve() as farm:
            workspace = Workspace(Path(folder))
            change(workspace.source)
            for name, options in (("here", ()), ("farm", ("--remote-executor", farm.url))):
                with stages.use_cache() as cache:
                    done = workspace.build("--cache", cache, "--jobs", "1", "--out", name, "--json", *options)
                if done.returncode:
                    raise SystemExit(done.stderr)
                events = (workspace.folder / json.loads(done.stdout)["folder"] / "events.json").read_text().splitlines()
                (metrics,) = [event["buildMetrics"] for event in map(json.loads, events) if "buildMetrics" in event]
                seconds = int(metrics["timingMetrics"]["executionPhaseTimeInMs"]) / 1000
                found[name].append(seconds / int(metrics["actionSummary"]["actionsExecuted"]))
    return found


def read_overhead() -> float:
    kept: dict[str, list[float]] = json.loads(RESULTS.read_text())
    return min(kept["farm"]) - min(kept["here"])


if __name__ == "__main__":
    if "--measure" in sys.argv:
        RESULTS.write_text(json.dumps(measure(), indent=2) + "\n")
    print(describe(read_overhead()))
