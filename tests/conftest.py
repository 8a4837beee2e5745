"""What all tests share: containers are opt-in by marker, and required where a machine says so."""

import os
import shutil
import signal
import subprocess

import pytest

REQUIRE = "TOOLKIT_REQUIRE_ENGINE"
"""Set in CI: a missing engine is then an error, so that a green run cannot hide skipped containers."""


def _engine_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=30, check=False).returncode == 0


@pytest.fixture(scope="session", autouse=True)
def usual_signals() -> None:
    """A shell in the background and nohup pass on ignored signals, which the program rightly leaves ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("engine")]
    if not marked or _engine_answers():
        return
    if os.environ.get(REQUIRE):
        raise pytest.UsageError(f"{REQUIRE} is set and no container engine answers")
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no container engine answers"))
