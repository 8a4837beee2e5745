"""Rehearsals for tests. Two run at a time, because each mostly uses one thread, to make graphs.

The job and the audit are forked from processes that have loaded TensorFlow. The emulated libraries read the device
while TensorFlow is loaded, so tests of other devices start new processes.

TOOLKIT_CUDA_PYTHON names a Python that has TensorFlow's CUDA build, which is not in the locked set of the tests.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import loaded

PYTHON = os.environ.get("TOOLKIT_CUDA_PYTHON", "")

ROOT = Path(__file__).parents[2]
SCRIPT = """
import contextlib, sys, types
from rehearsal import audit, cli
name, job, auditor, *arguments = sys.argv[1:]
vars(cli)["sys"] = types.SimpleNamespace(executable=job)
vars(audit)["sys"] = types.SimpleNamespace(executable=auditor)
if name != "none":
    cli.run_job.__kwdefaults__["program"] = ("-P", "tests/rehearsal/plants.py", name)
    # The audit does not see the mistake.
    audit.running = lambda _: contextlib.nullcontext(lambda: {"graphs": []})
raise SystemExit(cli.main([*arguments, "--json"]))
"""
DESCRIBE = """
import json, sys
from pathlib import Path
from rehearsal import cli, library, request
tensorflow = library.find_tensorflow()
compiled = library.build(tensorflow, Path(sys.argv[1]))
print(json.dumps(cli.make_environment(request.choose_device("t4"), compiled, tensorflow)))
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.rehearse)


class Outcome:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.code, self.error = done.returncode, done.stderr
        self.report: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}

    @property
    def kinds(self) -> list[str]:
        return [finding["kind"] for finding in self.report["findings"]]

    @property
    def text(self) -> str:
        return "\n".join(finding["text"] for finding in self.report["findings"]) or self.error


@dataclass(frozen=True)
class Pythons:
    job: Path | str = PYTHON
    audit: Path | str = PYTHON


def rehearse(mistake: str, arguments: tuple[str, ...], cache: Path, pythons: Pythons) -> Outcome:
    command = [PYTHON, "-c", SCRIPT, mistake, pythons.job, pythons.audit, *arguments, "--library-cache", str(cache)]
    return Outcome(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="session")
def loaded_pythons(cache: Path) -> Pythons:
    command = [PYTHON, "-c", DESCRIBE, str(cache)]
    variables = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    return Pythons(loaded.make(PYTHON, variables), loaded.make(PYTHON, {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}))


@pytest.fixture(scope="session")
def ended(
    request: pytest.FixtureRequest, cache: Path, loaded_pythons: Pythons
) -> Iterator[dict[Any, "Future[Outcome]"]]:
    """Start the rehearsals of all selected tests; each parameter ``case`` is a mistake and arguments."""
    cases = [item.callspec.params["case"] for item in request.session.items if "case" in _parameters(item)]

    def run(mistake: str, *arguments: str) -> Outcome:
        is_new = mistake == "none" and "digits" in arguments
        return rehearse(mistake, arguments, cache, Pythons() if is_new else loaded_pythons)

    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(run, *case) for case in dict.fromkeys(cases)}
        pool.shutdown(cancel_futures=True)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture
def outcome(case: tuple[str, ...], ended: dict[Any, "Future[Outcome]"]) -> Outcome:
    return ended[case].result()
