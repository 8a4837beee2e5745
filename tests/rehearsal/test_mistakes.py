import pytest

from tests.rehearsal.conftest import Outcome

JOB = ("digits", "--batch-size", "64", "--no-find-batch", "--warmup", "1")


def case(mistake: str, kind: str, *words: str, arguments: tuple[str, ...] = ()) -> object:
    return pytest.param((mistake, *JOB, *arguments), kind, words, id=f"{mistake}{''.join(arguments)}")


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        case("integer-product", "on host", "MatMul has no GPU kernel for T=int32"),
        case("determinism", "error", "FusedBatchNormGradV3", "deterministic"),
        case("int32", "crossings", "int32"),
        case("numpy", "on host", "PyFunc"),
        case("pinned", "on host", "Sqrt", "its device is given as the CPU"),
        case("launches", "launches", "kernel launches", "the limit is"),
        case("read", "to host", "copies to the host", "the limit is"),
        case("growth", "growth", "grows with each step"),
        case("none", "error", "llocat", arguments=("--gpu-memory", "0.4", "--batch-size", "1024")),
        case(
            "none",
            "no device code",
            "capability 5.2",
            "no kernel image is available",
            arguments=("--capability", "5.2"),
        ),
        case("none", "error", "driver version is insufficient", arguments=("--driver", "11.8")),
        case("none", "idle device", "1 of 2 GPUs", arguments=("--gpus", "2")),
    ],
)
def test_a_planted_mistake_is_found(outcome: Outcome, kind: str, words: tuple[str, ...]) -> None:
    assert outcome.code == 7, outcome.error
    assert kind in outcome.kinds, outcome.text
    assert not outcome.report["passed"]
    for word in words:
        assert word in outcome.text


@pytest.mark.parametrize("case", [("none", *JOB)], ids=["digits"])
def test_the_job_without_a_mistake_passes(outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.text or outcome.error
    assert outcome.report["passed"]
    assert outcome.report["emulated"]
    assert outcome.report["device"]["name"].endswith("(emulated)")
