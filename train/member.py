"""Starts the job as one member of a sweep. A scheduler gives it the number of the member.

``python -m train.member SCHEDULER MEMBER...`` is ``python -m train ARGUMENTS`` with the arguments of one member. Each
MEMBER is a command line in one word, and SCHEDULER is ``slurm`` or ``kubernetes``.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from train.__main__ import lead, start
from train.cluster.tf_config import read_whole
from train.errors import UsageError
from train.system.program import explain_errors

VARIABLES: Final[Mapping[str, str]] = {"slurm": "SLURM_ARRAY_TASK_ID", "kubernetes": "JOB_COMPLETION_INDEX"}
"""Where each scheduler writes the number of a job of an array, from 0."""


def pick(scheduler: str, members: Sequence[str], variables: Mapping[str, str] = os.environ) -> list[str]:
    """Return the arguments of the member that this job runs. Raises a UsageError."""
    name = VARIABLES[scheduler]
    number = read_whole(variables, name, why="it tells a job which member of the sweep it runs")
    if number >= len(members):
        raise UsageError(
            f"{name} is {number}, and there is no member {number}",
            why=f"{len(members)} members are named, and the first has the number 0",
            remedy="start one job for each member, with numbers from 0",
        )
    return shlex.split(members[number])


@explain_errors
def main(argv: Sequence[str]) -> int:
    """Start the job as a member, and return its exit code."""
    if not argv or argv[0] not in VARIABLES:
        raise UsageError(f"the first argument is none of {', '.join(VARIABLES)}")
    return start(pick(argv[0], argv[1:]))


if __name__ == "__main__":
    lead(lambda: main(sys.argv[1:]))
