import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolkit.checks.cli import CHECKS, main
from toolkit.smoke import runner


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(runner.FOLDER), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def good() -> subprocess.CompletedProcess[str]:
    return run("--expect-version", "2.19.0", "--device", "cpu", "--json")


@pytest.fixture(scope="module")
def bad() -> subprocess.CompletedProcess[str]:
    nouns = ("version.tensorflow", "build", "libraries", "compiler", "device", "numerics.matmul")
    asked = ("--expect-version", "2.18.0", "--expect-cuda", "12.6.1", "--expect-cudnn", "9.5.0")
    return run(*asked, "--expect-capability", "7.5", "--device", "gpu", "--json", "--only", *nouns)


def test_a_good_installation_passes(good: subprocess.CompletedProcess[str]) -> None:
    assert good.returncode == 0, good.stdout
    read = runner.parse(good.stdout)
    assert read.verdict == "pass"
    assert read.tensorflow == "2.19.0"
    assert [check.id for check in read.checks] == [check.id for check in CHECKS]


@pytest.mark.slow
def test_unmet_expectations_exit_with_seven(bad: subprocess.CompletedProcess[str]) -> None:
    assert bad.returncode == 7
    read = runner.parse(bad.stdout)
    assert {check.id for check in read.checks if check.state == "ok"} == {
        *("cpu.instructions", "libraries.system", "tensorflow.import", "numerics.matmul")
    }
    assert all(check.state != "skipped" for check in read.checks), "what was asked for is never skipped"


def fake_tensorflow(folder: Path, body: str) -> dict[str, str]:
    package = folder / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(body)
    return {"PYTHONPATH": str(folder)}


def only_import(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    checks = json.loads(result.stdout.splitlines()[-1])["report"]["checks"]
    found: dict[str, Any] = next(check for check in checks if check["id"] == "tensorflow.import")
    return found


def test_an_import_that_crashes_is_a_failure(tmp_path: Path) -> None:
    environment = fake_tensorflow(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGILL)")
    result = run("--json", "--only", "tensorflow", **environment)
    assert result.returncode == 7
    found = only_import(result)
    assert found["evidence"]["death"] == "SIGILL"
    assert "--id no-avx" in found["remedy"]


def test_an_import_that_hangs_is_a_failure(tmp_path: Path) -> None:
    environment = fake_tensorflow(tmp_path, "import time\ntime.sleep(600)")
    result = run("--json", "--only", "tensorflow", "--patience", "0.02", **environment)
    assert result.returncode == 7
    found = only_import(result)
    # On a busy machine it may go on a little, because the processor works for it.
    assert re.search(r"no answer within [3-9]\.\d s", found["evidence"]["why"])
    assert "tensorflow/__init__.py" in "\n".join(found["evidence"]["stderr"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    note = tmp_path / "pid"
    body = f"import os, pathlib, time\npathlib.Path({str(note)!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, str(runner.FOLDER), "--json"],
        env={**os.environ, **fake_tensorflow(tmp_path, body)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(200):
        if note.exists() and note.read_text():
            break
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == "interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(runner.FOLDER), "--json"],
        env={**os.environ, **fake_tensorflow(tmp_path, '__version__ = "1"')},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(30) == 130


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "numerics.matmull"), "did you mean numerics.matmul"),
        (("--expect-version", "latest"), "should look like 2.19.0"),
        (("--expect-capability", "75"), "should look like 7.5"),
        (("--expect-cuda", "12"), "should look like 12.6.1"),
        (("--device", "tpu"), "invalid choice"),
        (("--skip", "numericz"), "did you mean numerics."),
        (("--skip", "*"), "tensorflow.import cannot be left out"),
    ],
)
def test_wrong_usage_exits_with_two(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert message in said.err


def test_the_checks_import_nothing_but_the_standard_library() -> None:
    code = "import sys, checks.cli; print(sorted(name for name in sys.modules if '.' not in name))"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(runner.FOLDER.parent)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(json.loads(result.stdout.replace("'", '"')))
    assert {name for name in modules if not name.startswith("_")} - sys.stdlib_module_names <= {"checks"}
