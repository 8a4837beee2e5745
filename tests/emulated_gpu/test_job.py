from collections.abc import Callable

import pytest

from tests.emulated_gpu.conftest import Case, Outcome
from tests.tiers import slow, weekly

LARGE = ("synthetic", "--model", "121", "--batch-size", "32")
HALF = ("--precision", "mixed_float16")
JOBS = [("--memory", mode, *precision) for mode in ("plain", "recompute", "shared") for precision in ((), HALF)]


def case(*words: str, tier: Callable[..., object] = slow) -> object:
    return tier(Case(words), id=" ".join(words))


@pytest.mark.parametrize(
    "case",
    [
        case("digits", "--batch-size", "64"),
        case("cifar10", *JOBS[0], "--depth", "22"),
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
    assert outcome.faults == {}
    assert outcome.record["devices"] == ["Tesla T4 (emulated)"]
    assert len(outcome.record["steps"]) == 2
    counts = outcome.record["counts"]
    assert counts["fat binary"] == {"cubin sm_70": 281}
    assert "not emulated" not in counts
