import json
import sys
from pathlib import Path

import pytest

from tests.unit.smoke.broken import BROKEN
from tests.unit.smoke.conftest import Compiler
from toolkit.smoke.checks.check import Outcome
from toolkit.smoke.checks.libraries import DLOPENED
from toolkit.smoke.checks.supervisor import Supervisor

EXPECTED = {
    "matmul.result": "times its tolerance away from float64",
    "matmul.gradient": "gradient of left on /CPU:0 is",
    "matmul.bfloat16": "times its tolerance away from float64",
    "conv2d.result": "result on /CPU:0 is",
    "batch_norm.result": "on /CPU:0 is",
    "batch_norm.gradient": "gradient of",
    "xla.ignored": "jit_compile=True ran an op that XLA cannot compile",
    "xla.mute": "XLA gave no optimized HLO module",
    "xla.disagrees": "compiled and op-by-op results differ by 0.001",
    "onednn.off": "oneDNN is off",
    "device.other": "Imagined T4 has compute capability 8.6, asked for 7.5",
    "device.unserved": "the build has no kernel for Imagined T4 (6.1)",
    "device.elsewhere": "asked for GPU:0, computed on",
    "device.wrong": "the GPU's product of small integers is wrong",
    "device.greedy": "memory growth could not be switched on",
    "device.unaccounted": "does not account for a tensor",
    "libraries.unreachable": "TensorFlow does not find libcudnn.so.9, and would drop every GPU",
    "training.noise": "the same 3 training steps gave different weights",
}


@pytest.fixture(scope="module")
def found(gcc: Compiler, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder = tmp_path_factory.mktemp("cuda")
    for soname in DLOPENED:
        if "cudnn" not in soname:
            (folder / soname).write_bytes(gcc.answering())
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "LD_LIBRARY_PATH": str(folder)}
    supervisor = Supervisor([sys.executable, "-m", "tests.unit.smoke.broken"], environment=environment)
    return {finding.id: finding for finding in supervisor.run(BROKEN)}


def test_what_tensorflow_found_is_not_named(found: dict[str, Outcome]) -> None:
    assert set(found["libraries.unreachable"].evidence["missing"]) == {"libcudnn.so.9", "libcupti.so.12"}


@pytest.mark.parametrize("fault", EXPECTED)
def test_the_fault_is_noticed(found: dict[str, Outcome], fault: str) -> None:
    finding = found[fault]
    assert finding.result == "fail", finding.evidence
    assert EXPECTED[fault] in finding.evidence["why"], finding.evidence
    assert finding.remedy
    json.dumps(finding.as_dict(), allow_nan=False)
