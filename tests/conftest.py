import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
from typing import Any

import hypothesis
import pytest
import typer

from tests import threads

pytest.register_assert_rewrite("tests.makers")

threads.settle()
gc.disable()  # until all tests are collected, see `pytest_collection_finish`

NEEDS = {
    "engine": ("TOOLKIT_REQUIRE_ENGINE", "no container engine answers"),
    "rehearse": ("TOOLKIT_REQUIRE_REHEARSAL", "TOOLKIT_CUDA_PYTHON names no Python with TensorFlow's CUDA build"),
}
"""For each marker, the variable with which CI makes a skip an error, and the reason for the skip."""

# A program makes its commands from their declarations in 25 ms: once, not for each command line that a test reads.
setattr(typer.main, "get_command", functools.lru_cache(maxsize=16)(typer.main.get_command))  # noqa: B010

# A busy machine is slow: that is no defect in the tested code. The examples are others in each run.
hypothesis.settings.register_profile("toolkit", deadline=None, max_examples=50)
hypothesis.settings.load_profile("toolkit")

_SHARING = ("tests/integration/docker/", "tests/integration/", "tests/emulated_gpu/")
"""Folders whose tests share fixtures: builds of stages, commands that use an engine, jobs on an emulated GPU."""


def _engine_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0


@pytest.fixture(scope="session", autouse=True)
def own_key(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the key by which the toolkit marks environments out of the home of whoever runs the tests."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session", autouse=True)
def usual_signals() -> None:
    """Restore default handlers: background shells and nohup pass on ignored signals, which the toolkit keeps."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Leave TensorFlow and all tests out of the collections of garbage that come, each of which would search them."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run tests that share fixtures: those of one file, or of one folder in `_SHARING`."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return next((folder for folder in _SHARING if folder in file), file)

    return ByFile(config, log)


class _Failures:
    """Names each failure at once: a run of an hour that is cut short has then said what failed."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.strip().splitlines()
            reason = next((line for line in lines if line.startswith("E ")), lines[-1] if lines else "")
            self._terminal.ensure_newline()
            self._terminal.write_line(f"{report.when} of {report.nodeid} failed: {reason[:500]}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # Where a test has used up Python's stack, as deep JSON does, a finalizer that garbage collection runs fails too.
    report = sys.unraisablehook
    sys.unraisablehook = lambda failed: None if issubclass(failed.exc_type, RecursionError) else report(failed)
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal:  # not in the worker processes
        config.pluginmanager.register(_Failures(terminal))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    available = {"engine": _engine_answers, "rehearse": lambda: bool(os.environ.get("TOOLKIT_CUDA_PYTHON"))}
    for name, (required, reason) in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if not marked or available[name]():
            continue
        if os.environ.get(required):
            raise pytest.UsageError(f"{required} is set and {reason}")
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
