"""The training job as it is completes a rehearsal on a T4, and each step stays within ``limits.yaml``."""

import pytest

from tests.rehearsal.conftest import Outcome

QUICK = ("--gpu", "t4", "--no-find-batch", "--warmup", "2", "--measured", "2")
LARGE = ("synthetic", "--shape", "224x224x3", "--classes", "1000", "--model", "121", "--batch-size", "32")
PRECISIONS = ((), ("--precision", "mixed_float16"))


def case(*words: str) -> object:
    return pytest.param(("none", *words, *QUICK), id=" ".join(words))


@pytest.mark.parametrize(
    "case",
    [
        *(
            case("cifar10", "--memory", mode, *precision, *compiled)
            for mode in ("plain", "recompute", "shared")
            for precision in PRECISIONS
            for compiled in ((), ("--jit",))
        ),
        # ImageNet's models have no --jit: the job refuses it for their stem.
        *(case(*LARGE, *precision) for precision in PRECISIONS),
    ],
)
def test_the_job_stays_within_its_limits(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.text or outcome.error
    assert len(outcome.report["steps"]) == 2
    assert outcome.report["on_host"] == []
    assert outcome.report["fat_binaries"] == {"cubin sm_70": 281}
    assert outcome.report["not_emulated"] == {}


@pytest.mark.parametrize("case", [("none", "cifar10", "--memory", "plain", "--measured", "2")], ids=["batch"])
def test_the_largest_batch_lies_where_memory_ends(outcome: Outcome) -> None:
    batches = outcome.report["batches"]
    peaks = {int(size): peak for size, peak in batches["tried"].items()}
    assert peaks[64] < 2 * peaks[32] < 2.1 * peaks[64]
    assert 0.8 * batches["limit"] < peaks[batches["largest"]] < batches["limit"]
