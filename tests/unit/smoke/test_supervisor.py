import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.unit.smoke.hazards import HAZARDS
from toolkit.checks.check import Outcome
from toolkit.checks.supervisor import Supervisor, _DiedError, _Worker
from toolkit.versions.table import load_table

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "tests.unit.smoke.hazards"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    mark = tmp_path_factory.mktemp("hazards") / "mark"
    supervisor = Supervisor(COMMAND, environment={"PYTHONPATH": str(ROOT), "HAZARDS_MARK": str(mark)})
    return {finding.id: finding for finding in supervisor.run(HAZARDS)}


@pytest.mark.parametrize(
    ("name", "death"),
    [
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("illegal", "SIGILL"),
        ("killed", "SIGKILL"),
        ("leave", "exit code 3"),
    ],
)
def test_a_crash_is_a_failure_with_its_signal(found: dict[str, Outcome], name: str, death: str) -> None:
    finding = found[f"crash.{name}"]
    assert (finding.result, finding.evidence["death"]) == ("fail", death)
    assert finding.remedy


def test_each_death_has_its_own_remedy(found: dict[str, Outcome]) -> None:
    assert "--id program-killed" in found["crash.killed"].remedy
    assert "--id no-avx" in found["crash.illegal"].remedy
    assert "--id xla-ptx-target" in found["crash.ptx"].remedy
    assert "toolkit diagnose" not in found["crash.abort"].remedy
    assert any(failure.id == "xla-ptx-8.5" for failure in load_table().failures)


def test_a_hang_fails_at_its_deadline_and_shows_where(found: dict[str, Outcome]) -> None:
    finding = found["hang.sleep"]
    assert finding.result == "fail"
    assert "no answer within 0.6 s" in finding.evidence["why"]
    assert "in hang" in "\n".join(finding.evidence["stderr"])
    assert 0.6 <= finding.seconds < 10


def test_a_slow_check_may_go_on_while_it_works(found: dict[str, Outcome]) -> None:
    """The first import of TensorFlow from a cold disk takes minutes. A check that waits for nothing is ended."""
    assert found["slow.works"].result == "pass"
    assert found["slow.sleeps"].result == "fail"
    assert found["slow.sleeps"].seconds < 10


def test_a_hung_checks_children_end_with_it(found: dict[str, Outcome]) -> None:
    match = re.search(r"child (\d+)", "\n".join(found["hang.sleep"].evidence["stderr"]))
    assert match is not None
    status = Path(f"/proc/{match[1]}/stat")
    for _ in range(50):
        # It is gone, or a zombie that its new parent has not reaped.
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail(f"process {match[1]} outlived its check")


def test_a_hang_that_ignores_signals_is_killed(found: dict[str, Outcome]) -> None:
    assert found["hang.deaf"].evidence["death"] == "SIGKILL"


def test_a_check_whose_need_failed_is_skipped_with_the_reason(found: dict[str, Outcome]) -> None:
    assert found["after.false"].result == "skip"
    assert "ground.false" in found["after.false"].evidence["why"]


def test_a_worker_that_died_before_it_was_asked_has_said_why(tmp_path: Path) -> None:
    worker = _Worker([sys.executable, str(tmp_path / "absent.py")], os.environ)
    worker._listener.join()
    with pytest.raises(_DiedError) as died:
        worker.ask(HAZARDS[0].id, 10)
    worker.end()
    assert "No such file" in "\n".join(died.value.evidence["stderr"])
