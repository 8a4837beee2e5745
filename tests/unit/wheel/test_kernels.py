import json
from pathlib import Path
from typing import Any

import pytest

from tests.makers.publication import PLAN
from toolkit.base.console import Console
from toolkit.base.errors import CheckError, UsageError
from toolkit.wheel import kernel_proof
from toolkit.wheel.build_inputs import BuildInputs
from toolkit.wheel.build_options import BuildOptions
from toolkit.wheel.build_plan import plan

NUMBERS = {"seconds": 12.5, "kernels": 40, "registers": 96, "spills": 8, "cause": "", "error": "", "kept": "0a"}
FAILED = {**NUMBERS, "kernels": 0, "registers": 0, "spills": 0, "kept": ""}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    value = {"schema": 1, "versions": {}, "architectures": ["sm_75", "sm_120"]}
    path = folder / kernel_proof.REPORT
    path.write_text(json.dumps(value | {"kernels": [{"file": f"{n}.cu.cc", **row} for n, row in enumerate(rows)]}))
    return path


def test_a_file_that_does_not_compile_is_named(tmp_path: Path) -> None:
    report = kernel_proof.read(
        write(tmp_path, NUMBERS, {**FAILED, "cause": "assembler", "error": "ptxas fatal: no room"})
    )
    with pytest.raises(CheckError, match="1 of 2 files of GPU kernels do not compile") as caught:
        kernel_proof.require(report)
    assert caught.value.why == "1.cu.cc: assembler: ptxas fatal: no room"


def test_a_build_without_a_network_proves_no_kernels() -> None:
    alone = BuildInputs(stages={"base": "docker-image://toolkit/offline:base-1"})
    with pytest.raises(UsageError, match="--prove-kernels needs a network"):
        plan(PLAN.lock, BuildOptions(prove_kernels="20"), alone)


def test_the_step_compiles_the_tree_of_the_plan(tmp_path: Path) -> None:
    (command,) = kernel_proof.plan_task(PLAN, tmp_path, Console(), wanted="20").step.commands
    assert command[command.index("--target") + 1] == "kernels-proof"
    assert "KERNELS=20" in command
    assert f"COMPUTE_CAPABILITIES={PLAN.arguments['COMPUTE_CAPABILITIES']}" in command
