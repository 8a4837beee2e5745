from collections.abc import Callable

import pytest

from tests.rehearsal.conftest import Outcome
from tests.tiers import slow, weekly

T4 = ("--gpu", "t4", "--warmup", "2", "--measured", "2")
LARGE = ("synthetic", "--shape", "224x224x3", "--classes", "1000", "--model", "121", "--batch-size", "32")
HALF = ("--precision", "mixed_float16")
JOBS = [("--memory", mode, *precision) for mode in ("plain", "recompute", "shared") for precision in ((), HALF)]


def case(*words: str, options: tuple[str, ...] = ("--no-find-batch",), tier: Callable[..., object] = slow) -> object:
    return tier(("none", *words, *T4, *options), id=" ".join(words))


FIND_BATCH = case("cifar10", *JOBS[0], "--depth", "22", options=())


@pytest.mark.parametrize(
    "case",
    [
        FIND_BATCH,
        *(case("cifar10", *job, tier=weekly) for job in JOBS),
        # XLA compiles each layer, which takes two minutes for all layers of the usual model.
        *(case("cifar10", *job, "--jit", "--depth", "22", tier=weekly) for job in JOBS[:-1]),
        case("cifar10", *JOBS[-1], "--jit", "--depth", "22"),
        case("cifar10", *JOBS[-1], "--jit", tier=weekly),
        # ImageNet's models have no --jit: the job refuses it for their stem.
        *(case(*LARGE, *precision, tier=weekly) for precision in ((), HALF)),
    ],
)
def test_the_job_stays_within_its_limits(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.text or outcome.error
    assert len(outcome.report["steps"]) == 2
    assert outcome.report["on_host"] == []
    assert outcome.report["fat_binaries"] == {"cubin sm_70": 281}
    assert outcome.report["not_emulated"] == {}


@pytest.mark.parametrize("case", [FIND_BATCH])
def test_the_largest_batch_lies_where_memory_ends(outcome: Outcome) -> None:
    batches = outcome.report["batches"]
    peaks = {int(size): peak for size, peak in batches["tried"].items()}
    assert peaks[64] < 2 * peaks[32] < 2.1 * peaks[64]
    assert 0.8 * batches["limit"] < peaks[batches["largest"]] < batches["limit"]
