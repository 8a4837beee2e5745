import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.makers.gpu_rules import cubin
from toolkit.smoke.checks import gpu_rules


@pytest.mark.parametrize(
    ("text", "number", "architecture"),
    [("7.5", "7.5", "75"), ("sm_75", "7.5", "75"), ("compute_120", "12.0", "120"), ("sm_90a", "9.0a", "90a")],
)
def test_a_capability_is_read_in_each_form(text: str, number: str, architecture: str) -> None:
    found = gpu_rules.parse_capability(text)
    assert found is not None
    assert (found.number, found.architecture) == (number, architecture)


@pytest.mark.parametrize("text", ["", "75", "7", "7.5.1", "sm_7", "sm75", "7.5b", "sm_7.5"])
def test_another_form_is_no_capability(text: str) -> None:
    assert gpu_rules.parse_capability(text) is None


@pytest.mark.parametrize(
    ("built", "present", "conflict"),
    [
        ("9.5.0", "9.5.1", ""),
        ("9.5.1", "9.5.0", ""),
        ("9.3.0", "9.5.0", ""),
        ("9", "9.5.0", ""),
        ("9.6.0", "9.5.0", "older"),
        ("8.9.7.29", "9.5.0", "major"),
        ("10.0", "9.5.0", "major"),
        ("", "9.5.0", ""),
        ("64_9", "9.5", ""),
    ],
)
def test_cudnn_is_compared_as_tensorflow_does(built: str, present: str, conflict: str) -> None:
    assert gpu_rules.compare_cudnn(built, present) == conflict


@pytest.mark.parametrize(
    ("flags", "abi", "architecture"),
    [
        (0x4B054B, 7, 75),
        (0x32055A, 7, 90),
        (0x6004B04, 8, 75),
        (0x6007802, 8, 120),
        (0x500550, 7, 80),
        (0x6005A02, 8, 90),
    ],
)
def test_a_cubin_tells_its_architecture(flags: int, abi: int, architecture: int) -> None:
    assert gpu_rules.read_cubin_architecture(cubin(flags, abi=abi)) == architecture


@pytest.mark.parametrize("data", [b"", b"\x7fELF", cubin(0x4B, machine=62), b"MZ" + bytes(62)])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no ELF file for a GPU"):
        gpu_rules.read_cubin_architecture(data)


@pytest.mark.parametrize(
    ("built", "asked", "how"),
    [
        (["sm_75"], "7.5", "sm_75 machine code"),
        (["compute_75"], "7.5", "compute_75 machine code"),
        (["sm_70", "sm_75"], "7.5", "sm_75 machine code"),
        (["sm_60", "compute_70"], "7.5", "compute_70 machine code of an earlier minor version"),
        (["sm_60", "compute_60"], "7.5", "compute_60 PTX, compiled by the driver when a kernel is first used"),
        (["compute_90"], "12.0", "compute_90 PTX, compiled by the driver when a kernel is first used"),
        (["sm_90a"], "9.0", "sm_90a machine code"),
        (["sm_100a"], "10.3", None),
        (["sm_80"], "7.5", None),
        (["sm_75"], "8.0", None),
        (["sm_86"], "8.0", None),
        (["compute_90"], "7.5", None),
        (["compute_86"], "8.0", None),
        (["nonsense"], "7.5", None),
    ],
)
def test_coverage(built: list[str], asked: str, how: str | None) -> None:
    found = gpu_rules.find_coverage(built, asked)
    assert (str(found) if found else None) == how


names = st.builds("{}_{}{}".format, st.sampled_from(["sm", "compute"]), st.integers(5, 12), st.integers(0, 9))


@given(st.lists(names), names, st.integers(5, 12), st.integers(0, 9))
def test_more_kernels_never_cover_less(built: list[str], more: str, major: int, minor: int) -> None:
    asked = f"{major}.{minor}"
    assert gpu_rules.find_coverage(built, asked) is None or gpu_rules.find_coverage([*built, more], asked) is not None


@given(st.lists(names, min_size=1))
def test_what_was_built_covers_itself(built: list[str]) -> None:
    for name in built:
        digits = name.partition("_")[2]
        assert gpu_rules.find_coverage(built, f"{digits[:-1]}.{digits[-1]}") is not None
