"""Runs checks in worker processes; the parent enforces each deadline and records how a worker died."""

import ctypes
import faulthandler
import json
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .check import Check, Evidence, Expectation, Outcome, find_remedy

_KEPT_LINES = 24
_LAST_WORDS_SECONDS = 3.0
_MOST = 20
"""How many times its deadline a slow check may take while it computes or reads, as an import from a cold disk does."""


class Supervisor:
    """Runs checks in worker processes, a new one after each death. ``patience``: a factor on every deadline."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, patience: float = 1.0
    ) -> None:
        self._command = list(command)
        self._environment = {**os.environ, **(environment or {})}
        self._patience = patience
        self._worker: _Worker | None = None

    def run(self, checks: Sequence[Check], *, left_out: Collection[str] = ()) -> Iterator[Outcome]:
        """Run checks in order, a needed one before those that need it, and yield each finding at once."""
        known = {check.id: check for check in checks}
        results: dict[str, str] = {}
        try:
            for check in checks:
                unmet = [need for need in check.needs if results[need] != "pass"]
                if check.id in left_out:
                    finding = check.found("skip", {"why": "left out, as --skip asked"})
                elif unmet:
                    finding = check.found("skip", {"why": f"not run: it needs {', '.join(unmet)}, which did not pass"})
                else:
                    finding = self._prepared(check, known)
                results[check.id] = finding.result
                yield finding
        finally:
            self._stop()

    def _prepared(self, check: Check, known: Mapping[str, Check]) -> Outcome:
        for need in check.needs:
            if self._worker is not None and need in self._worker.passed:
                continue
            again = self._attempt(known[need])
            if again.result != "pass":
                why = f"not run: {need} passed before, but not in the new worker: {again.evidence.get('why', '')}"
                return check.found("fail", {**again.evidence, "why": why}, remedy=again.remedy)
        return self._attempt(check)

    def _attempt(self, check: Check) -> Outcome:
        if self._worker is None:
            self._worker = _Worker(self._command, self._environment)
        worker = self._worker
        start = time.monotonic()
        try:
            answer = worker.ask(check.id, check.timeout * self._patience, working=check.slow)
        except _HungError as hung:
            self._stop()
            return check.found(
                "fail",
                {
                    "why": f"no answer within {hung.seconds:.1f} s; the worker was ended",
                    **hung.evidence,
                },
                remedy="stderr shows where it hung; if the machine was busy then, run the same command again",
                seconds=time.monotonic() - start,
            )
        except _DiedError as died:
            self._stop()
            return check.found(
                "fail",
                {"why": f"the worker died: {died.evidence['death']}", **died.evidence},
                remedy=_explain_death(died.evidence),
                seconds=time.monotonic() - start,
            )
        if answer["result"] == "pass":
            worker.passed.add(check.id)
        return Outcome(**answer)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


class _WorkerError(Exception):
    """The worker gave no answer. The evidence has ``death``, a signal's name or an exit code, and ``stderr``."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence["death"])
        self.evidence = evidence


class _HungError(_WorkerError):
    def __init__(self, evidence: Evidence, seconds: float) -> None:
        super().__init__(evidence)
        self.seconds = seconds


class _DiedError(_WorkerError):
    pass


class _Worker:
    """One worker process. It leads a process group, so that its own children end with it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.passed: set[str] = set()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: S101, PT018 - PIPE
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._buffer = b""
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._listener = threading.Thread(target=self._listen, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    def ask(self, check_id: str, deadline: float, *, working: bool = False) -> dict[str, Any]:
        """Return the answer to a question. ``working``: past its deadline it may go on while it computes or reads."""
        try:
            self._requests.write(check_id.encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise _DiedError(self._last_words()) from None
        start, work = time.monotonic(), self._measure()
        end = start + deadline
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            if not ready and working and self._measure() > work and time.monotonic() < start + _MOST * deadline:
                work, end = self._measure(), time.monotonic() + max(1.0, deadline / 10)
                continue
            if not ready:
                # faulthandler answers SIGABRT with the stack of every thread.
                self._signal(signal.SIGABRT)
                raise _HungError(self._last_words(), time.monotonic() - start)
            chunk = os.read(self._answers.fileno(), 1 << 16)
            if not chunk:
                raise _DiedError(self._last_words())
            self._buffer += chunk
        # Not before a question: a worker that died as it started has said why by then.
        self._lines.clear()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _measure(self) -> int:
        """Return how much the worker has done: ticks of the processor, and bytes that the disk gave it."""
        folder = Path("/proc", str(self._process.pid))
        work = 0
        with suppress(OSError, ValueError):
            # Its name, in parentheses, may have blanks; the times are the 14th and 15th field.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            work += int(fields[11]) + int(fields[12])
        with suppress(OSError, ValueError):  # a container may forbid the second
            work += sum(
                int(line.split()[1]) for line in (folder / "io").read_text().splitlines() if "read_bytes" in line
            )
        return work

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._requests, self._answers):
            with suppress(BrokenPipeError):
                stream.close()

    def _last_words(self) -> Evidence:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_SECONDS)
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        self._listener.join(_LAST_WORDS_SECONDS)
        death = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"death": death, "stderr": list(self._lines)}

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _listen(self, stream: Any) -> None:
        with stream:
            for line in stream:
                self._lines.append(line.decode(errors="replace").rstrip())


_PTX = re.compile(r"PTX version \d+\.\d+ does not support target|ptx\d+ is required for target")
"""The last words of LLVM where XLA takes the PTX version of an older CUDA than the GPU needs."""


def _explain_death(evidence: Evidence) -> str:
    if evidence["death"] == "SIGKILL":
        return find_remedy("program-killed")
    if evidence["death"] == "SIGILL":
        return find_remedy("no-avx")
    if evidence["death"] == "SIGSEGV":
        return find_remedy("segmentation-fault")
    if any(_PTX.search(line) for line in evidence["stderr"]):
        return find_remedy("xla-ptx-target")
    return "stderr holds its last lines; run this check alone with --only to see it again"


_PR_SET_PDEATHSIG = 1


def serve(checks: Sequence[Check], expectation: Expectation) -> None:
    """Run the requested checks until standard input ends. Only answers go to the original standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _die_with_parent()
    # A crash, or the SIGABRT that the parent sends to a hung check, leaves its stack as evidence, and no core file.
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    known = {check.id: check for check in checks}
    for line in sys.stdin:
        finding = known[line.strip()].run(expectation)
        sys.stderr.flush()
        answers.write(json.dumps(finding.as_dict()) + "\n")
        answers.flush()


def _die_with_parent() -> None:
    """Ask the kernel to end this process with its parent: a hung check must not outlive it (prctl(2), Linux only)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
