"""Starts the job as one of several workers: finds the others by what a scheduler says, and writes TF_CONFIG.

``python -m train.peers SCHEDULER ARGUMENTS`` is ``python -m train ARGUMENTS`` with TF_CONFIG. SCHEDULER is ``slurm``
or ``compose``.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from train.__main__ import lead, start
from train.cluster.tf_config import describe, read_whole
from train.errors import PreflightError, UsageError
from train.system.program import explain_errors

PORT: Final = 2222
"""The port of worker 0 where each worker has an address of its own; Slurm's worker i has the i-th after it."""

SETTLED_SECONDS: Final = 5.0
"""How long the number of compose's replicas must stay the same, if TOOLKIT_WORKERS does not tell it."""


def find_slurm(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of a task of a Slurm step, in which each node has as many tasks as the others.

    Hosts have the order of their tasks, which TensorFlow's own reader of these variables does not keep.
    """
    rank, count = read_whole(variables, "SLURM_PROCID"), read_whole(variables, "SLURM_NTASKS")
    nodes = _read(variables, "SLURM_STEP_NODELIST")
    command = ["scontrol", "show", "hostnames", nodes]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise PreflightError(
            "scontrol cannot be run on this machine",
            why=f"Slurm's program names the machines of the job: {error.strerror}",
            remedy="add the folder of Slurm's programs to PATH, or write TF_CONFIG and start `python -m train`",
        ) from error
    hosts = listed.stdout.split()
    if not hosts or count % len(hosts):
        raise PreflightError(
            f"the tasks do not share the nodes {nodes} evenly",
            why=listed.stderr.strip() or f"{count} tasks on {len(hosts)} nodes",
            remedy="give srun --ntasks-per-node",
        )
    port = read_whole(variables, "TOOLKIT_PORT", PORT)
    tasks_per_node = count // len(hosts)
    return describe([f"{hosts[index // tasks_per_node]}:{port + index}" for index in range(count)], rank)


def find_compose(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of a replica of compose's service TOOLKIT_SERVICE.

    The service's name has the addresses of all replicas, whose order gives each its place. Each gets all GPUs,
    and takes the one with its own number.
    """
    service = _read(variables, "TOOLKIT_SERVICE")
    addresses = wait_for_replicas(service, read_whole(variables, "TOOLKIT_WORKERS", 0))
    own_address = socket.gethostbyname(socket.gethostname())
    if own_address not in addresses:
        raise PreflightError(
            f"the name {service} does not lead to this container", remedy="start it by `docker compose up`"
        )
    index = addresses.index(own_address)
    return describe([f"{address}:{PORT}" for address in addresses], index) | {"CUDA_VISIBLE_DEVICES": str(index)}


def wait_for_replicas(
    service: str, asked: int, settled: float = SETTLED_SECONDS, patience: float = 300.0
) -> Sequence[str]:
    """Return the addresses of replicas, lowest first: of ``asked`` ones, or of all once their number stays the same."""
    begun = changed = time.monotonic()
    previous: set[str] = set()
    while True:
        try:
            addresses = {
                str(item[4][0]) for item in socket.getaddrinfo(service, None, socket.AF_INET, socket.SOCK_STREAM)
            }
        except socket.gaierror:
            addresses = set()
        now = time.monotonic()
        previous, changed = addresses, changed if addresses == previous else now
        if addresses and (len(addresses) == asked or (not asked and now - changed >= settled)):
            return sorted(addresses, key=ip_address)
        if now - begun > patience:
            raise PreflightError(
                f"{len(addresses)} containers of the service {service} are running"
                + (f", not {asked}" if asked else ", and their number changes"),
                remedy=f"docker compose up --scale {service}={asked or 2} {service}",
            )
        time.sleep(0.2)


def _read(variables: Mapping[str, str], name: str) -> str:
    if not variables.get(name):
        raise UsageError(f"{name} is not set", why="it tells a worker which one it is", remedy="see docs/scale.md")
    return variables[name]


FINDERS: Final[Mapping[str, Callable[[], dict[str, str]]]] = {
    "slurm": find_slurm,
    "compose": find_compose,
}


@explain_errors
def main(argv: Sequence[str]) -> int:
    """Start the job as a worker, and return its exit code."""
    if not argv or argv[0] not in FINDERS:
        raise UsageError(f"the first argument is none of {', '.join(FINDERS)}")
    os.environ.update(FINDERS[argv[0]]())
    return start(argv[1:])


if __name__ == "__main__":
    lead(lambda: main(sys.argv[1:]))
