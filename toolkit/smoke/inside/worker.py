"""The process that runs checks: reads ids from standard input, answers each with one JSON object on a line."""

import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence

from .check import Ask, Check

_PR_SET_PDEATHSIG = 1


def serve(checks: Sequence[Check], ask: Ask) -> None:
    """Answer requests until standard input ends.

    The answers keep the original standard output to themselves: libraries that print go to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _die_with_parent()
    # A crash, or the SIGABRT that the parent sends to a hung check, leaves its stack as evidence, and no core file.
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    known = {check.id: check for check in checks}
    for line in sys.stdin:
        finding = known[line.strip()].run(ask)
        sys.stderr.flush()
        answers.write(json.dumps(finding.as_dict()) + "\n")
        answers.flush()


def _die_with_parent() -> None:
    """A hung check must not outlive a parent that was killed (prctl(2), Linux only)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
