import os
import subprocess
import sys

import pytest

from tests import threads
from toolkit.base.project import ROOT
from train import cores
from train.cli import parse
from train.step import runtime
from train.system import memory


def test_a_job_that_leaves_its_threads_open_takes_those_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert runtime.choose_threads(parse(["digits"]), None) == threads.THREADS


@pytest.mark.parametrize("asked", [1, 3, 64])
def test_every_module_counts_the_cores_that_were_asked_for(asked: int) -> None:
    code = (
        "from tests import conftest; from train.run import conclusion; from train.step import runtime; import os;"
        "from train.data import pictures;"
        "from toolkit.doctor import hardware;"
        "print(*(m.count_cores() for m in (conclusion, pictures, hardware, runtime)), len(os.sched_getaffinity(0)))"
    )
    variables = {**os.environ, threads.CORES: str(asked)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True, check=True
    )
    kept = min(asked, len(os.sched_getaffinity(0)))
    assert done.stdout.split() == [str(number) for number in (asked, asked, asked, threads.THREADS, kept)]


@pytest.mark.parametrize(
    ("count", "gigabytes", "processes"), [(1, 64, 1), (2, 24, 2), (4, 24, 4), (64, 256, 4), (4, 5, 2), (4, 1, 1)]
)
def test_the_fast_tests_have_as_many_processes_as_fit_the_machine(
    monkeypatch: pytest.MonkeyPatch, count: int, gigabytes: int, processes: int
) -> None:
    monkeypatch.setattr(cores, "count_cores", lambda: count)
    monkeypatch.setattr(memory, "read_free", lambda: gigabytes * 10**9)
    assert threads.count_processes() == processes
