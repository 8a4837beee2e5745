"""Ends Bazel when it waits for a remote executor that is gone, or for a cache that says nothing.

Bazel 7.7.1 waits without an end for an executor that freezes, or that dies before it has the inputs of an action;
``--remote_timeout`` and ``--remote_retries`` do not help. Bazel's own pings (``--grpc_keepalive_time``) end such a
build after six tries: after 90 seconds with a ping every 10 seconds, as was measured. By gRPC's default a server closes
the connection of a client that pings more often than once in five minutes, and then six tries take half an hour.

A build is alive while Bazel says something new, while an action runs on this machine, or while the executor answers:
a long action says nothing for many minutes, and its executor answers all the time.

A cache that takes connections and says nothing costs each action up to six calls of 60 s. Bazel knows no other way.
A cache that answers within the time of a call is fine, however slow it is.
"""

import math
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from wheelbuild import service

SILENCE = 30
"""Seconds without any sign of life after which a build is ended. Bazel's own retries give up within 15."""

STALL = 4 * 3600
"""Seconds in which Bazel says nothing new, although the executor answers: longer than any action of TensorFlow."""

CACHE_SILENCE = 120
"""The same seconds for a cache: two calls without an answer."""

GRACE = 10
"""Seconds that Bazel has to end by itself, with its caches written."""

_SECONDS = re.compile(r"\b\d+s\b")
_HERE = re.compile(r";\s*\d+s (?:(?:remote|disk)-cache, )?(?!remote|disk-cache)[a-z]")
"""An action that runs by a strategy of this machine, in a progress line: ``Compiling x.cc; 12s local``.

Where a cache was asked first, it is named before: ``12s remote-cache, linux-sandbox``. The question alone is no work.
"""


class Watchdog:
    """Watches one run of Bazel.

    ``ask`` returns why the service does not answer, or an empty text. ``trouble`` says why the run was ended.
    """

    def __init__(
        self,
        service_url: str,
        *,
        silence: float = SILENCE,
        stall: float = STALL,
        grace: float = GRACE,
        ask: Callable[[str], str] = service.find_trouble,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.trouble = ""
        self._url, self._silence, self._stall, self._grace = service_url, silence, stall, grace
        self._ask, self._clock = ask, clock
        self._said = ""
        self._here = False
        self._moved = self._lived = clock()
        self._over = threading.Event()

    def hear(self, line: str) -> None:
        """Take a line of Bazel. One that differs from the last only in its seconds is nothing new."""
        said = _SECONDS.sub("", line)
        if said != self._said:
            self._said, self._moved = said, self._clock()
        self._here = bool(_HERE.search(line))

    def look(self) -> bool:
        """Look for a sign of life, and set ``trouble`` if there was none for too long; False: no answer."""
        alive = self._here or self._clock() - self._moved < self._silence / 6
        reason = "" if alive else self._ask(self._url)
        now = self._clock()
        if not reason:
            self._lived = now
        silent = now - max(self._moved, self._lived)
        if silent >= self._silence:
            self.trouble = f"stopped answering {silent:.0f} s ago: {reason}"
        elif now - self._moved > self._stall:
            self.trouble = f"answers, but no action ended in {self._stall / 60:.0f} minutes"
        return not reason

    @contextmanager
    def watching(self, process: "subprocess.Popen[str]") -> Iterator[None]:
        self._moved = self._lived = self._clock()
        thread = threading.Thread(target=self._watch, args=(process,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(self._grace)  # a question may take longer, and its answer is of no use any more

    def _watch(self, process: "subprocess.Popen[str]") -> None:
        well = True
        while not self._over.wait(self._silence / (2 if well else 6)):
            well = self.look()
            if self.trouble and not self._over.is_set():
                _end(process, self._grace)
                return


def watch_cache(url: str) -> Watchdog:
    """Return the watchdog of a build that asks a cache. Local actions may take hours."""
    return Watchdog(url, silence=CACHE_SILENCE, stall=math.inf, ask=service.find_silence)


def _end(process: "subprocess.Popen[str]", grace: float) -> None:
    """End Bazel: it cancels the build at the first interrupt, and kills its server at the third."""
    for signals, seconds in ((1, grace), (2, grace / 2)):
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
