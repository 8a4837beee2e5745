from dataclasses import replace
from pathlib import Path

import pytest

from toolkit import interpreters
from toolkit.install.changes import Changes, Installed, compare
from toolkit.install.packages import Package

PYTHON = interpreters.Interpreter(
    path=Path("/env/bin/python"),
    version="3.11.7",
    prefix=Path("/env"),
    base=Path("/usr"),
    packages=Path("/env/lib"),
    compiled=Path("/env/lib"),
    managed=False,
)
TENSORFLOW = Package(
    name="tensorflow", version="2.21.0", text="", requires=("numpy>=1.26", "wrapt; extra == 'more'"), exact=True
)
NUMPY = Package(name="numpy", version="2.4.6", text="")
CUDNN = Package(name="nvidia-cudnn-cu12", version="9.10.2.21", text="", exact=True)
SET = (TENSORFLOW, NUMPY, CUDNN)


def compare_with(*there: Installed, packages: tuple[Package, ...] = SET) -> Changes:
    return compare(packages, {each.name: each for each in there}, PYTHON)


def test_everything_is_added_to_an_empty_environment_without_a_question() -> None:
    found = compare_with()
    assert {each.name for each in found.wanted} == {each.name for each in SET}
    assert not found.needs_consent


def test_a_package_stays_that_the_set_accepts() -> None:
    found = compare_with(Installed(name="numpy", version="2.0.0"), Installed(name="flask", version="3.0"))
    assert {each.name for each in found.wanted} == {"tensorflow", "nvidia-cudnn-cu12"}
    assert found.kept == 2
    assert not found.needs_consent


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (Installed(name="numpy", version="1.24.0"), "tensorflow needs numpy>=1.26"),
        (Installed(name="nvidia-cudnn-cu12", version="9.20.0.1"), "an OLDER one"),
        (Installed(name="tensorflow", version="2.19.0", tensorflow=True), "a newer one"),
        (Installed(name="numpy", version="1.24.0", installer="conda"), "conda installed it"),
    ],
)
def test_a_package_that_gets_another_version_is_named_and_needs_consent(there: Installed, reason: str) -> None:
    found = compare_with(there)
    assert found.needs_consent
    assert [each.name for each in found.replaced] == [there.name]
    assert any(there.name in line and there.version in line and reason in line for line in found.describe())


def test_tensorflow_of_another_name_is_removed_because_it_has_the_same_files() -> None:
    found = compare_with(Installed(name="tensorflow-cpu", version="2.21.0", tensorflow=True))
    assert found.removed == ("tensorflow-cpu",)
    assert found.needs_consent


def test_another_build_of_the_same_version_is_replaced() -> None:
    own = replace(TENSORFLOW, wheel=Path("/wheel.whl"), digest="sha256:1")
    there = Installed(name="tensorflow", version="2.21.0", origin="sha256:2", tensorflow=True)
    assert [each.name for each in compare_with(there, packages=(own, NUMPY)).replaced] == ["tensorflow"]
    same = compare_with(replace(there, origin="sha256:1"), packages=(own, NUMPY))
    assert [each.name for each in same.wanted] == ["numpy"]


def test_other_packages_that_do_not_accept_a_change_are_named() -> None:
    """It is said only of those that worked before."""
    old = Installed(name="numpy", version="1.24.0")
    user = Installed(name="pandas", version="1.5.0", requires=("numpy<2",))
    broken = Installed(name="scipy", version="1.0", requires=("numpy>=9", "missing"))
    found = compare_with(old, user, broken)
    assert len(found.broken) == 1
    assert "pandas" in found.broken[0]
    assert "2.4.6" in found.broken[0]


def test_a_package_of_the_set_does_not_stay_if_it_does_not_accept_what_is_beside_it() -> None:
    keras = Package(name="keras", version="3.15.1", text="", requires=("numpy",))
    there = Installed(name="keras", version="3.0", requires=("numpy<2",))
    found = compare_with(there, packages=(TENSORFLOW, NUMPY, keras))
    assert [each.name for each in found.replaced] == ["keras"]


def test_what_only_a_package_needs_that_stays_as_it_is_stays_away() -> None:
    """pip does not install it either."""
    board = Package(name="tensorboard", version="2.21.0", text="", requires=("pillow>=9", "numpy>=2.5"))
    pillow = Package(name="pillow", version="13.0.0", text="", requires=("olefile",))
    olefile = Package(name="olefile", version="1.0", text="")
    packages = (TENSORFLOW, NUMPY, board, pillow, olefile)
    older = Installed(name="tensorboard", version="2.19.0", requires=("numpy",))
    found = compare_with(older, Installed(name="numpy", version="2.0.0"), packages=packages)
    assert [each.name for each in found.wanted] == ["tensorflow"]
    assert {each.name for each in compare_with(packages=packages).wanted} == {each.name for each in packages}
