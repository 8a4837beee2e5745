import pytest

from toolkit.checks import gpu_rules


@pytest.mark.parametrize(
    ("built", "present", "conflict"),
    [
        ("9.5.0", "9.5.1", ""),
        ("9.5.1", "9.5.0", ""),
        ("9.6.0", "9.5.0", "older"),
        ("8.9.7.29", "9.5.0", "major"),
        ("64_9", "9.5", ""),
    ],
)
def test_cudnn_is_compared_as_tensorflow_does(built: str, present: str, conflict: str) -> None:
    assert gpu_rules.compare_cudnn(built, present) == conflict


@pytest.mark.parametrize(
    ("built", "asked", "how"),
    [
        (["sm_75"], "7.5", "sm_75 machine code"),
        (["sm_60", "compute_70"], "7.5", "compute_70 machine code of an earlier minor version"),
        (["sm_60", "compute_60"], "7.5", "compute_60 PTX, compiled by the driver when a kernel is first used"),
        (["compute_90"], "12.0", "compute_90 PTX, compiled by the driver when a kernel is first used"),
        (["sm_90a"], "9.0", "sm_90a machine code"),
        (["sm_100a"], "10.3", None),
        (["sm_80"], "7.5", None),
        (["compute_86"], "8.0", None),
        (["nonsense"], "7.5", None),
    ],
)
def test_coverage(built: list[str], asked: str, how: str | None) -> None:
    found = gpu_rules.find_coverage(built, asked)
    assert (str(found) if found else None) == how
