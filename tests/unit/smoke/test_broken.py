import json
import sys
from pathlib import Path

import pytest

from tests.unit.smoke.broken import BROKEN, Fault
from tests.unit.smoke.conftest import Compiler
from toolkit.smoke.checks.check import Outcome
from toolkit.smoke.checks.libraries import DLOPENED
from toolkit.smoke.checks.supervisor import Supervisor


@pytest.fixture(scope="module")
def found(gcc: Compiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("cuda")
    for soname in DLOPENED:
        if "cudnn" not in soname:
            (folder / soname).write_bytes(gcc.answering())
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "LD_LIBRARY_PATH": str(folder)}
    supervisor = Supervisor([sys.executable, "-m", "tests.unit.smoke.broken"], environment=environment)
    return {finding.id: finding for finding in supervisor.run([fault.check for fault in BROKEN])}


def test_what_tensorflow_found_is_not_named(found: dict[str, Outcome]) -> None:
    assert set(found["libraries.unreachable"].evidence["missing"]) == {"libcudnn.so.9", "libcupti.so.12"}


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.check.id)
def test_the_fault_is_noticed(found: dict[str, Outcome], fault: Fault) -> None:
    finding = found[fault.check.id]
    assert finding.result == "fail", finding.evidence
    assert fault.says in finding.evidence["why"], finding.evidence
    assert finding.remedy
    json.dumps(finding.as_dict(), allow_nan=False)
