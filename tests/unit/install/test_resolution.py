from collections.abc import Collection
from dataclasses import dataclass

import pytest

from tests.unit.install.index import Index
from toolkit.base.errors import BuildError, UnsupportedError
from toolkit.install import changes
from toolkit.install.changes import Changes
from toolkit.install.installed import list_installed
from toolkit.install.target import Target

ROOT = "tensorflow[and-cuda]==2.21.0"
SET = {
    "tensorflow": "2.21.0",
    "numpy": "2.4.6",
    "protobuf": "7.36.2",
    "ml-dtypes": "0.6.0",
    "nvidia-cudnn-cu12": "9.28.0",
    "nvidia-nccl-cu12": "2.32.3",
}
CUDNN, NCCL = "nvidia/cudnn/lib/libcudnn.so.9", "nvidia/nccl/lib/libnccl.so.2"


@pytest.fixture
def full(index: Index) -> Index:
    """An index with a TensorFlow that takes any NumPy from 1.26 on, as that of 2.21.0 does, and what else is there."""
    cuda = [f'nvidia-{name}-cu12>={first}; extra == "and-cuda"' for name, first in (("cudnn", 9), ("nccl", 2))]
    index.add("tensorflow", "2.21.0", "numpy>=1.26", "protobuf>=6,<8", "ml-dtypes>=0.5", *cuda)
    index.add("numpy", "2.4.6")
    index.add("protobuf", "7.36.2")
    index.add("ml-dtypes", "0.6.0", "numpy>=2")
    for name, version, *needs in (
        ("ml-dtypes", "0.5.4", "numpy>=1.21"),
        ("numpy", "1.26.4"),
        ("numpy", "2.9.0"),
        ("protobuf", "3.20.3"),
        ("torch", "2.14.1", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"),
        ("torch", "2.9.1", "nvidia-cudnn-cu12==9.10.2", "nvidia-nccl-cu12==2.27.5"),
        ("jax-cuda13-plugin", "0.10.2", "nvidia-cudnn-cu13"),
        ("jax-cuda12-plugin", "0.10.2", "nvidia-cudnn-cu12>=9.8"),
        ("old", "1.0", "numpy<2"),
        ("own", "1.0", "protobuf<4"),
        ("pandas", "1.5.3", "numpy>=1.21"),
        ("tensorflow-text", "2.19.0", "tensorflow<2.20,>=2.19"),
    ):
        index.add(name, version, *needs, lock=False)
    for cuda_version, versions in (
        ("12", ("9.10.2", "2.27.5")),
        ("12", ("9.28.0", "2.32.3")),
        ("13", ("9.24.0", "2.30.7")),
    ):
        for (name, path), version in zip((("cudnn", CUDNN), ("nccl", NCCL)), versions, strict=True):
            package = f"nvidia-{name}-cu{cuda_version}"
            index.add(package, version, files={path: package + version}, lock=version == SET.get(package))
    for name in ("tensorflow-cpu", "tf-nightly"):
        index.add(name, "2.21.0", files={"tensorflow/__init__.py": f"{name}\n"}, lock=False)
    return index


def plan(index: Index, target: Target, *roots: str) -> tuple[dict[str, str], Changes]:
    planned = index.plan(target, *(roots or (ROOT,)))
    return {package.name: package.version for package in planned.packages}, planned.changes


@dataclass(frozen=True)
class There:
    """An environment that people have, and what comes of it."""

    has: tuple[str, ...]
    adds: Collection[str] = frozenset(SET)  # names
    says: tuple[str, ...] = ()  # what waits for consent, in words


REST = frozenset(SET)
TORCH_12 = ("torch==2.9.1", "nvidia-cudnn-cu12==9.10.2", "nvidia-nccl-cu12==2.27.5")
WHOLE = ("tensorflow==2.21.0", "numpy==2.9.0", "protobuf==7.36.2", "ml-dtypes==0.6.0", *TORCH_12[1:])
PROTOBUF = "protobuf 3.20.3 becomes 7.36.2, a newer one; tensorflow needs protobuf>=6,<8"
SECOND = "{} 2.21.0 is removed; tensorflow has files of the same names"

ENVIRONMENTS = {
    "NumPy 1, which a package needs": There(("numpy==1.26.4", "old"), REST - {"numpy"}),
    "pandas that was compiled for NumPy 1": There(("numpy==1.26.4", "pandas"), REST - {"numpy"}),
    "torch for the same CUDA": There(TORCH_12, REST - {"nvidia-cudnn-cu12", "nvidia-nccl-cu12"}),
    "all that is needed, in other versions": There(WHOLE, frozenset()),
    "a graft": There(("tensorflow==2.21.0+sm120", *WHOLE[1:]), frozenset()),
    "an old protobuf, which a package needs": There(
        ("protobuf==3.20.3", "own"),
        REST - {"protobuf"},
        (PROTOBUF, "own 1.0 may no longer work: it needs protobuf<4, and gets 7.36.2"),
    ),
    "a package for another TensorFlow": There(
        ("tensorflow-text",),
        says=("tensorflow-text 2.19.0 may no longer work: it needs tensorflow<2.20,>=2.19, and gets 2.21.0",),
    ),
    "tensorflow-cpu": There(("tensorflow-cpu",), says=(SECOND.format("tensorflow-cpu"),)),
}


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_what_is_there_stays_and_what_cannot_is_named_with_both_reasons(full: Index, target: Target, name: str) -> None:
    there = ENVIRONMENTS[name]
    if name == "a graft":  # which no index has
        full.add("tensorflow", "2.21.0+sm120", lock=False)
    full.fill(target, *there.has)
    _, found = plan(full, target)
    changes.require_apart(found, list_installed(target.python))
    assert {package.name for package in found.added} == there.adds
    assert (*(change.describe() for change in found.changed), *found.broken) == there.says
    assert found.needs_consent is bool(there.says)


@pytest.mark.parametrize(
    ("has", "way_out"),
    [
        (("torch==2.14.1", "nvidia-cudnn-cu13", "nvidia-nccl-cu13"), "whose name begins with cu12"),
        (("jax-cuda13-plugin", "nvidia-cudnn-cu13"), "--into DIR"),
    ],
    ids=["torch", "JAX"],
)
def test_a_framework_for_another_cuda_is_refused_with_a_way_out(
    full: Index, target: Target, has: tuple[str, ...], way_out: str
) -> None:
    """The packages of CUDA 12 and 13 have other names, and files of the same ones."""
    full.fill(target, *has)
    _, found = plan(full, target)
    with pytest.raises(UnsupportedError, match="they have the same files") as caught:
        changes.require_apart(found, list_installed(target.python))
    assert (
        f"would overwrite {CUDNN} of nvidia-cudnn-cu13 9.24.0, and {has[0].partition('==')[0]} would load it"
        in caught.value.why
    )
    assert way_out in caught.value.remedy


def test_what_has_no_solution_is_said_in_the_words_of_the_resolver(index: Index, target: Target) -> None:
    index.add("tensorflow", "2.21.0", "numpy>=3")
    index.add("numpy", "2.4.6")
    with pytest.raises(BuildError, match="uv failed") as caught:
        index.plan(target)
    assert "numpy" in caught.value.why
