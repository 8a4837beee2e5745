import pytest

from tests.unit.install.index import Index
from toolkit.base.errors import BuildError, UnsupportedError
from toolkit.install import changes, resolution
from toolkit.install.changes import Changes
from toolkit.install.installed import list_installed
from toolkit.install.target import Target


@pytest.fixture
def full(index: Index) -> Index:
    """An index with a TensorFlow that takes any NumPy from 1.26 on, as that of 2.21.0 does."""
    index.add("tensorflow", "2.21.0", "numpy>=1.26", "protobuf>=6,<8", "ml-dtypes>=0.5")
    index.add("numpy", "2.4.6")
    index.add("protobuf", "7.36.2")
    index.add("ml-dtypes", "0.6.0", "numpy>=2")
    index.add("ml-dtypes", "0.5.4", "numpy>=1.21", lock=False)
    index.add("numpy", "1.26.4", lock=False)
    index.add("numpy", "2.9.0", lock=False)
    index.add("protobuf", "3.20.3", lock=False)
    return index


def plan(index: Index, target: Target) -> tuple[dict[str, str], Changes]:
    planned = index.plan(target)
    return {package.name: package.version for package in planned.packages}, planned.changes


def test_without_packages_of_the_user_it_is_the_locked_set(full: Index, target: Target) -> None:
    versions, found = plan(full, target)
    assert versions == {"tensorflow": "2.21.0", "numpy": "2.4.6", "protobuf": "7.36.2", "ml-dtypes": "0.6.0"}
    assert not found.needs_consent
    locked = resolution.read_locked(full.locked, target.python)
    assert {package.text for package in found.added} == {package.text for package in locked.values()}


def test_what_is_there_stays_if_tensorflow_runs_with_it(full: Index, target: Target) -> None:
    full.fill(target, "numpy==1.26.4")
    versions, found = plan(full, target)
    assert (versions["numpy"], versions["ml-dtypes"]) == ("1.26.4", "0.5.4")
    assert not found.needs_consent


@pytest.mark.parametrize("needs", ["numpy<2", ""], ids=["by its metadata", "by the table"])
def test_what_another_package_needs_counts(full: Index, target: Target, needs: str) -> None:
    """pandas 1.5.3 was compiled for NumPy 1, and its metadata does not say so."""
    full.add("pandas", "1.5.3", *([needs] if needs else []), lock=False)
    full.fill(target, "pandas==1.5.3")
    versions, found = plan(full, target)
    assert versions["numpy"] == "1.26.4"
    assert not found.needs_consent


def test_what_cannot_stay_is_named_with_both_reasons(full: Index, target: Target) -> None:
    full.add("own", "1.0", "protobuf<4", lock=False)
    full.fill(target, "protobuf==3.20.3", "own==1.0")
    versions, found = plan(full, target)
    assert versions["protobuf"] == "7.36.2"
    assert [change.describe() for change in found.changed] == [
        "protobuf 3.20.3 becomes 7.36.2, a newer one; tensorflow needs protobuf>=6,<8"
    ]
    assert found.broken == ("own 1.0 may no longer work: it needs protobuf<4, and gets 7.36.2",)


def test_what_moves_gets_the_locked_version_and_not_the_newest(full: Index, target: Target) -> None:
    full.add("protobuf", "7.99.0", lock=False)
    full.fill(target, "protobuf==3.20.3")
    versions, _ = plan(full, target)
    assert versions["protobuf"] == "7.36.2"


def test_a_package_that_waits_for_another_tensorflow_is_named(full: Index, target: Target) -> None:
    full.add("tensorflow-text", "2.19.0", "tensorflow<2.20,>=2.19", lock=False)
    full.fill(target, "tensorflow-text==2.19.0")
    _, found = plan(full, target)
    assert found.broken == (
        "tensorflow-text 2.19.0 may no longer work: it needs tensorflow<2.20,>=2.19, and gets 2.21.0",
    )


def test_a_second_tensorflow_goes_and_one_of_the_right_version_stays(full: Index, target: Target) -> None:
    full.add("tensorflow-cpu", "2.21.0", files={"tensorflow/__init__.py": "other\n"}, lock=False)
    full.fill(target, "tensorflow-cpu==2.21.0")
    assert plan(full, target)[1].removed == ("tensorflow-cpu",)
    full.add("tensorflow", "2.21.0+sm120", lock=False)
    full.uv.run("pip", "uninstall", "--python", target.python.path, "tensorflow-cpu")
    full.fill(target, "tensorflow==2.21.0+sm120", "numpy==2.4.6", "protobuf==7.36.2", "ml-dtypes==0.6.0")
    assert not plan(full, target)[1].wanted


@pytest.mark.parametrize("needs", [True, False])
def test_the_name_tensorflow_is_taken_where_a_package_needs_it(full: Index, target: Target, needs: bool) -> None:
    """Otherwise that package would install a second TensorFlow over tensorflow-cpu."""
    full.add("tf-keras", "2.21.0", *(["tensorflow>=2.21"] if needs else []), lock=False)
    full.fill(target, "tf-keras==2.21.0")
    assert resolution.needs_name(list_installed(target.python.packages)) is needs


@pytest.mark.parametrize(
    ("there", "coming", "apart"),
    [
        ("nvidia-nccl-cu13", "nvidia-nccl-cu12", False),
        ("nvidia-cudnn-cu13", "nvidia-nccl-cu12", True),
        ("tf-nightly", "tensorflow", False),
        ("opencv-python-headless", "opencv-python", False),
        ("nvidia-cublas", "nvidia-cublas-cu12", True),
    ],
)
def test_packages_with_the_same_files_are_refused_by_their_names(
    index: Index, target: Target, there: str, coming: str, apart: bool
) -> None:
    index.add(there, "1.0", files={"shared.so": "one"}, lock=False)
    index.add("torch", "2.14.1", there, lock=False)
    index.add(coming, "2.0")
    index.fill(target, there, "torch")
    planned, installed = index.plan(target, coming), list_installed(target.python.packages)
    if apart:
        changes.require_apart(planned.changes, installed)
        return
    with pytest.raises(UnsupportedError) as caught:
        changes.require_apart(planned.changes, installed)
    assert there in str(caught.value)
    assert "torch would load it" in caught.value.why
    assert "cu126" in caught.value.remedy


def test_what_has_no_solution_is_said_in_the_words_of_the_resolver(index: Index, target: Target) -> None:
    index.add("tensorflow", "2.21.0", "numpy>=3")
    index.add("numpy", "2.4.6")
    with pytest.raises(BuildError, match="uv failed") as caught:
        index.plan(target)
    assert "numpy" in caught.value.why
