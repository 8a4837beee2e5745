import pytest
from packaging.specifiers import SpecifierSet

from toolkit.versions import bounds
from toolkit.versions.set import Set
from toolkit.versions.table import load_table

TABLE = load_table()
CUDNN, CUBLAS, NCCL = "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12"
EARLIER = ("6.0", "7.0", "8.0", "8.9")


@pytest.mark.parametrize(
    ("tensorflow", "served", "package", "allowed", "refused"),
    [
        ("2.21.0", ("12.0",), CUBLAS, ("12.8.4.1", "12.9.1.4"), ("12.5.3.2", "12.8.3.14", "13.0.0.19")),
        ("2.21.0", ("12.1",), CUBLAS, ("12.9.1.4",), ("12.8.4.1",)),
        ("2.21.0", EARLIER, CUBLAS, ("12.5.3.2", "12.9.1.4"), ("12.4.5.8",)),
        ("2.21.0", (*EARLIER, "12.0"), CUDNN, ("9.7.0.66", "9.10.2.21"), ("9.6.0.74", "9.11.0.98", "9.28.0.42")),
        ("2.21.0", ("7.5", "12.0"), CUDNN, ("9.28.0.42",), ("9.6.0.74", "10.0.0.1")),
        ("2.19.0", ("8.0",), CUDNN, ("9.3.0.75", "9.28.0.42"), ("9.2.1.18",)),
        ("2.21.0", ("8.0",), NCCL, ("2.27.7", "2.32.3"), ("2.25.1", "3.0")),
    ],
)
def test_versions_fit_the_cards(
    tensorflow: str, served: tuple[str, ...], package: str, allowed: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    found = SpecifierSet(bounds.list_bounds(TABLE, Set(tensorflow=tensorflow, cuda="12.5.1"), served)[package])
    assert [version for version in (*allowed, *refused) if version in found] == list(allowed)
