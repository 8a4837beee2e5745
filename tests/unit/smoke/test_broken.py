import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.smoke.broken import BROKEN, Fault
from tests.unit.smoke.conftest import Compiler
from tests.unit.smoke.published import PUBLISHED
from toolkit.checks.check import Outcome
from toolkit.checks.cli import CHECKS
from toolkit.checks.libraries import OPENED, list_libraries
from toolkit.checks.supervisor import Supervisor


@pytest.fixture(scope="module")
def found(gcc: Compiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("cuda")
    for soname in list_libraries(PUBLISHED):
        if soname.partition(".")[0] in OPENED and "cudnn" not in soname:
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


def list_failing() -> Iterator[str]:
    """Yield the functions that a test of this folder calls where a check must fail, or has in a table of such calls."""
    yield from (f"{fault.probe.__module__.rpartition('.')[2]}.{fault.probe.__name__}" for fault in BROKEN)
    for file in Path(__file__).parent.glob("test_*.py"):
        for test in ast.walk(ast.parse(file.read_text())):
            if isinstance(test, ast.FunctionDef) and "raises(Fail" in (text := ast.unparse(test)):
                yield text


def test_each_check_has_a_test_in_which_it_fails() -> None:
    failing = " ".join(list_failing())
    probes = {check.id: f"{check.probe.__module__.rpartition('.')[2]}.{check.probe.__name__}" for check in CHECKS}
    assert [name for name, probe in probes.items() if not re.search(rf"\b{re.escape(probe)}\b", failing)] == []
