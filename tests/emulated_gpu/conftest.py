"""Jobs on the emulated GPU. Two run at a time, because each mostly uses one thread, to make graphs.

The emulated libraries read the device while TensorFlow is loaded, so a job on the usual device is forked from a process
that has loaded it, and one on another device starts a process.

TOOLKIT_CUDA_PYTHON names a Python that has TensorFlow's CUDA build, which is not in the locked set of the tests.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import loaded
from tests.emulated_gpu import device, verdict

PYTHON = os.environ.get("TOOLKIT_CUDA_PYTHON", "")
ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from pathlib import Path
from tests.emulated_gpu import library
tensorflow = library.find_tensorflow()
library.build(tensorflow, Path(sys.argv[1]))
print(tensorflow)
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.rehearse)


@dataclass(frozen=True)
class Library:
    """The compiled libraries, and the TensorFlow for whose headers they are compiled."""

    folder: Path
    tensorflow: Path
    python: str = PYTHON

    @classmethod
    def build(cls, folder: Path, python: str = PYTHON) -> "Library":
        done = subprocess.run([python, "-c", BUILD, folder], cwd=ROOT, check=True, capture_output=True, text=True)
        return cls(folder, Path(done.stdout.strip()), python)

    def describe(self, name: str = "t4", **changes: Any) -> dict[str, str]:
        variables = device.make_environment(name, self.folder, self.tensorflow, **changes)
        return variables | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


@dataclass(frozen=True)
class Case:
    """A job: its arguments, a mistake that is planted into its step, and what is changed of the device."""

    arguments: tuple[str, ...]
    mistake: str = ""
    gpu: str = "t4"
    changes: tuple[tuple[str, Any], ...] = ()
    elementwise: bool = False  # whether each elementwise operation runs too


@dataclass(frozen=True)
class Outcome:
    record: dict[str, Any]
    log: str = field(repr=False)

    @property
    def faults(self) -> dict[str, str]:
        return verdict.find_faults(self.record)


def train(case: Case, library: Library, folder: Path, python: Path | str = "") -> Outcome:
    """Run a job in a process, and return what it recorded. What TensorFlow ends itself is an error of it too."""
    source, target = folder / "request.json", folder / "record.json"
    request = {"arguments": case.arguments, "mistake": case.mistake, "elementwise": case.elementwise}
    source.write_text(json.dumps(request))
    argv = [python or library.python, "-m", "tests.emulated_gpu.job", source, target]
    variables = library.describe(case.gpu, **dict(case.changes))
    done = subprocess.run(argv, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
    record = json.loads(target.read_text()) if target.exists() else {}
    if done.returncode:
        record["error"] = {
            "kind": "Crash",
            "message": f"exit code {done.returncode}: {done.stderr[-2000:]}",
            "node": "",
        }
    return Outcome(record, done.stderr)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library.build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def ended(
    request: pytest.FixtureRequest, library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Case, "Future[Outcome]"]]:
    """Start the jobs of all selected tests, which name each by a parameter ``case``."""
    cases = [item.callspec.params["case"] for item in request.session.items if "case" in _parameters(item)]
    usual = loaded.make(PYTHON, library.describe())

    def run(case: Case) -> Outcome:
        return train(case, library, tmp_path_factory.mktemp("job"), "" if case.changes else usual)

    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(run, case) for case in dict.fromkeys(cases)}
        pool.shutdown(cancel_futures=True)


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture
def outcome(case: Case, ended: dict[Case, "Future[Outcome]"]) -> Outcome:
    return ended[case].result()
