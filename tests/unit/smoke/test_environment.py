"""The checks in an environment that the toolkit did not make."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Run


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with a TensorFlow that imports, and has nothing else of one."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python3.*/site-packages"))
    (packages / "tensorflow").mkdir()
    (packages / "tensorflow" / "__init__.py").write_text("from tensorflow import config\n__version__ = '2.21.0'\n")
    (packages / "tensorflow" / "config.py").write_text("def list_physical_devices(kind): return []\n")
    return folder


def take_stock(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in sorted(folder.rglob("*"))}


def test_nothing_is_written_and_nothing_is_expected_that_was_not_asked_for(environment: Path, run: Run) -> None:
    before = take_stock(environment)
    arguments = ["--environment", str(environment), "--device", "gpu", "--skip", "numerics", "--json"]
    done = run("smoke", *arguments, PYTHONDONTWRITEBYTECODE="")
    assert done.returncode == 12, done.stderr
    report = json.loads(done.stdout)
    results = {check["id"]: check for check in report["checks"]}
    assert report["tensorflow"] == "2.21.0"
    assert results["tensorflow.import"]["result"] == "pass"
    assert results["tensorflow.import"]["evidence"]["file"].startswith(str(environment))
    assert take_stock(environment) == before
    assert not (run.folder / ".toolkit").exists()


def test_other_code_of_the_caller_does_not_count(environment: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tensorflow.py").write_text("raise SystemExit(3)\n")
    done = run(
        *("smoke", "--environment", str(environment), "--tensorflow", "2.19.0", "--json"),
        PYTHONPATH=str(tmp_path / "other"),
    )
    results = {check["id"]: check["result"] for check in json.loads(done.stdout)["checks"]}
    assert results["tensorflow.import"] == "pass"
    assert results["version.tensorflow"] == "fail"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--environment", "nowhere"], "there is no Python in nowhere"),
        (["--environment", ".", "--image", "any"], "--environment and --image exclude each other"),
        (["--environment", ".", "--engine", "docker"], "--environment and --engine docker exclude each other"),
    ],
)
def test_what_is_no_environment_is_wrong_usage(arguments: list[str], reason: str, run: Run) -> None:
    done = run("smoke", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
