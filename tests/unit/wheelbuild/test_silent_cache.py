"""A build whose cache takes connections and says nothing goes on without it. The servers, and the program that plays
Bazel, are real processes and sockets.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from wheelbuild import arguments, bazel, service
from wheelbuild.__main__ import run_bazel
from wheelbuild.request import read_request
from wheelbuild.watchdog import Watchdog, watch_cache

from tests.makers.build_request import GIVEN
from tests.server import Handler, QuietHandler, serve

PLAYED = """
import sys, time, urllib.request
cache = [word.partition("=")[2] for word in sys.argv if word.startswith("--remote_cache=")][-1]
for action in range(3):
    print(f"[{action} / 3] Compiling {action}.cc; 0s remote-cache", flush=True)
    if cache:
        try:
            urllib.request.urlopen(f"{cache}/ac/{action}", timeout=6 * 60).read()
        except OSError:
            pass
print("done with" if cache else "done without", flush=True)
"""
"""Asks the cache for each action, as Bazel does, and waits as long."""


class Freezing:
    """A cache that answers some requests, each after ``delay`` seconds, and then takes connections alone."""

    def __init__(self, answers: int, delay: float = 0) -> None:
        self.left, self.delay, self.asked = answers, delay, 0
        self.over = threading.Event()

    @property
    def handler(self) -> Handler:
        def answer(request: QuietHandler) -> None:
            self._answer(request)

        return answer

    def _answer(self, request: QuietHandler) -> None:
        self.asked += 1
        self.left -= 1
        if self.left < 0:
            self.over.wait(60)
            return
        time.sleep(self.delay)
        request.answer(404)


@contextmanager
def serving(cache: Freezing) -> Iterator[str]:
    with serve(GET=cache.handler) as address:
        try:
            yield f"http://{address}"
        finally:
            cache.over.set()


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[list[str], bazel.Ended, str]]:
    program = tmp_path / "bazel.py"
    program.write_text(PLAYED)
    monkeypatch.setattr("wheelbuild.__main__.SOURCE", tmp_path)
    monkeypatch.setattr(service, "CALL_SECONDS", 0.5)
    watch = partial(Watchdog, silence=1, grace=5, ask=service.find_silence)
    monkeypatch.setattr("wheelbuild.__main__.watch_cache", watch)

    def run(url: str) -> tuple[list[str], bazel.Ended, str]:
        wanted = read_request({**GIVEN, "REMOTE_CACHE": url}, cores=2, memory=8192)
        argv = [sys.executable, str(program), f"--remote_cache={url}"]
        argv, ended = run_bazel(argv, wanted, {}, tmp_path / "log", str)
        return argv, ended, (tmp_path / "log").read_text().splitlines()[-1]

    return run


@pytest.mark.parametrize("answers", [0, 2])
def test_a_build_goes_on_without_a_cache_that_is_frozen_or_freezes(
    answers: int, build: Callable[[str], tuple[list[str], bazel.Ended, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Freezing(answers)) as url:
        start = time.monotonic()
        argv, ended, last = build(url)
    assert time.monotonic() - start < 30
    assert (ended, last) == (bazel.Ended(code=0), "done without")
    assert argv[-1] == arguments.WITHOUT_CACHE
    said = capsys.readouterr().out
    assert said.count("the build goes on without it") == 1
    assert url in said


def test_a_cache_that_refuses_costs_no_time_and_is_kept(
    build: Callable[[str], tuple[list[str], bazel.Ended, str]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    assert build(url)[2] == "done with"


def test_a_build_waits_two_calls_of_bazel_for_its_cache_and_for_ever_for_its_own_actions() -> None:
    assert service.CALL_SECONDS == 60
    watchdog, now = watch_cache("http://cache"), 0.0
    answers = [""]
    watchdog._ask, watchdog._clock = (lambda _: answers[0]), (lambda: now)
    watchdog._moved = watchdog._lived = now

    def wait(line: str, seconds: int) -> str:
        nonlocal now
        end = now + seconds
        while now < end and not watchdog.trouble:
            watchdog.hear(line)
            now += 10
            watchdog.look()
        return watchdog.trouble

    waits = "[3 / 11] Compiling a.cc; 12s remote-cache"
    assert wait(waits, 24 * 3600) == ""  # it answers
    answers[0] = "timed out"
    assert wait("[3 / 11] Compiling a.cc; 12s remote-cache, linux-sandbox", 24 * 3600) == ""
    assert wait("[4 / 11] Compiling a.cc; 12s local", 24 * 3600) == ""
    assert wait(waits, 110) == ""
    assert wait("[4 / 11] Compiling a.cc; 112s disk-cache", 180).startswith("stopped answering")
