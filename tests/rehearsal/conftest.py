"""Rehearsals for tests. Two run at a time, because each mostly uses one thread, to make graphs.

They need TensorFlow's CUDA build, which is not in the locked set of the tests. TOOLKIT_CUDA_PYTHON names a Python that
has it; `toolkit rehearse` leaves one in ``.toolkit/environment-rehearse-*/venv/bin/python``.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("TOOLKIT_CUDA_PYTHON", "")

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from train.rehearsal import cli, launch
name, *arguments = sys.argv[1:]
if name != "none":
    launch.run.__kwdefaults__["program"] = ("-P", "tests/rehearsal/plants.py", name)
raise SystemExit(cli.main([*arguments, "--json"]))
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.rehearse)


class Outcome:
    """A finished rehearsal: exit code, report (empty if there is none) and standard error."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.error = done.returncode, done.stderr
        self.report: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    @property
    def kinds(self) -> list[str]:
        return [finding["kind"] for finding in self.report["findings"]]

    @property
    def text(self) -> str:
        return "\n".join(finding["text"] for finding in self.report["findings"]) or self.error


def rehearse(mistake: str, arguments: tuple[str, ...], cache: Path) -> Outcome:
    """Rehearse with a planted mistake, or with ``none``."""
    command = [PYTHON, "-c", SCRIPT, mistake, *arguments, "--library-cache", str(cache)]
    return Outcome(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="session")
def ended(request: pytest.FixtureRequest, cache: Path) -> Iterator[dict[Any, "Future[Outcome]"]]:
    """Start the rehearsals of all selected tests; each parameter ``case`` is a mistake and arguments."""
    cases = [item.callspec.params["case"] for item in request.session.items if "case" in _parameters(item)]
    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(rehearse, case[0], case[1:], cache) for case in dict.fromkeys(cases)}
        pool.shutdown(cancel_futures=True)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture
def outcome(case: tuple[str, ...], ended: dict[Any, "Future[Outcome]"]) -> Outcome:
    return ended[case].result()
