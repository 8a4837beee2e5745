import pytest

from tests.emulated_gpu.conftest import Case, Outcome

JOB = ("digits", "--batch-size", "64")


def case(mistake: str, kind: str, *words: str) -> object:
    return pytest.param(Case(JOB, mistake), kind, words, id=mistake, marks=pytest.mark.slow)


def change(name: str, value: object, kind: str, *words: str, batch: str = "64") -> object:
    job = Case((*JOB[:-1], batch), changes=((name, value),))
    return pytest.param(job, kind, words, id=f"{name} {value}", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        case("integer-product", "on_host", "MatMul at", "T=int32"),
        case("determinism", "error", "FusedBatchNormGradV3", "deterministic"),
        case("int32", "crossings", "int32"),
        case("numpy", "on_host", "PyFunc at"),
        case("launches", "launches", "the limit is"),
        case("read", "to host", "the limit is"),
        case("growth", "growth", "grows with each step"),
        change("memory", 0.4, "error", "llocat", batch="1024"),
        change("capability", "5.2", "no device code", "has code for the device"),
        change("driver", "11.8", "error", "driver version is insufficient"),
    ],
)
def test_a_planted_mistake_is_found(outcome: Outcome, kind: str, words: tuple[str, ...]) -> None:
    assert kind in outcome.faults, outcome.log[-2000:]
    for word in words:
        assert word in outcome.faults[kind]
