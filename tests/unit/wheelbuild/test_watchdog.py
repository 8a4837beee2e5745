import signal
import sys
from pathlib import Path

import pytest
from wheelbuild import bazel
from wheelbuild.watchdog import GRACE, SILENCE, STALL, Watchdog

WAITS = "[3 / 11] Compiling a.cc; {}s remote ... (2 actions, 1 running)"
PREPARES = "[3 / 11] [Prepa] Compiling a.cc"
WORKS_HERE = "[10 / 11] Packing the wheel; {}s local"
URL = "grpc://executor:1"
GONE = f"{URL}: timed out"


class Build:
    """A build that says a line each five seconds, looked at as the watchdog's thread does."""

    def __init__(self, answer: str, **options: float) -> None:
        self.now, self.answer = 0.0, answer
        self.watchdog = Watchdog(URL, ask=lambda _: self.answer, clock=lambda: self.now, **options)

    def wait(self, line: str, seconds: int) -> str:
        """Return the trouble that the watchdog finds within so many seconds."""
        end = self.now + seconds
        while self.now < end and not self.watchdog.trouble:
            self.watchdog.hear(line.format(int(self.now)))
            self.now += 5
            self.watchdog.look()
        return self.watchdog.trouble


@pytest.mark.parametrize("line", [WAITS, PREPARES])
def test_build_whose_executor_is_gone_is_ended_within_a_minute(line: str) -> None:
    build = Build("")
    assert build.wait(line, 3600) == ""
    build.answer, gone = GONE, build.now
    assert build.wait(line, 3600) == f"stopped answering 30 s ago: {GONE}"
    assert build.now - gone + SILENCE / 2 + GRACE * 1.5 <= 60


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (WAITS, ""),  # a long action on an executor that answers
        (PREPARES, ""),  # a slow network
        (WORKS_HERE, GONE),  # the executor is not needed now
        ("[{} / 9999] Compiling a.cc", GONE),  # actions end
    ],
)
def test_slow_build_that_lives_is_not_ended(line: str, answer: str) -> None:
    assert Build(answer).wait(line, 3 * 3600) == ""


def test_build_in_which_nothing_ends_is_ended_although_the_executor_answers() -> None:
    assert Build("").wait(WAITS, STALL + 60) == "answers, but no action ended in 240 minutes"


@pytest.mark.parametrize(("deaf", "code"), [("", 8), ("signal.signal(signal.SIGINT, signal.SIG_IGN)", -signal.SIGKILL)])
def test_bazel_is_asked_to_end_and_killed_if_it_does_not(tmp_path: Path, deaf: str, code: int) -> None:
    program = "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(8)); "
    argv = [sys.executable, "-c", f"{program}{deaf}\nprint('x', flush=True)\ntime.sleep(600)"]
    # The interpreter needs its time to start; what is waited for is the log, and Bazel is found silent after it.
    watchdog = Watchdog(URL, silence=1, grace=0.2 if deaf else 60, ask=lambda _: GONE)
    ended = bazel.run(argv, environment={}, folder=tmp_path, log=tmp_path / "log", watchdog=watchdog)
    assert ended.code in {code, -signal.SIGINT}
    assert ended.trouble.endswith(GONE)
