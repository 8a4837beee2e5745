from collections.abc import Callable
from importlib.metadata import PackagePath
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.smoke.conftest import Site
from toolkit.checks import installation
from toolkit.checks.check import Expectation, Fail


@pytest.mark.parametrize("asked", ["2.18.0", "2.19.1", "2.19.0+cuda126", "2.19.0rc1", "2.1"])
def test_another_version_fails(site: Site, asked: str) -> None:
    site.install()
    with pytest.raises(Fail, match=r"was asked for, 2\.19\.0 is installed"):
        installation.version(Expectation(version=asked))


def install_twice(site: Site) -> None:
    site.install("tensorflow")
    site.install("tensorflow-cpu")


def change_byte(site: Site) -> None:
    site.install()
    file = Path(site.module.__file__)
    file.write_bytes(file.read_bytes().replace(b"2.19", b"2.91"))


def lose_file(site: Site) -> None:
    with (site.install() / "RECORD").open("a") as listing:
        listing.write("tensorflow/lost.so,sha256=AAAA,1\n")


def overwrite_library(site: Site) -> None:
    site.install()
    for name, code in (("nvidia-nccl-cu12", "AAAA"), ("nvidia-nccl-cu13", "BBBB")):
        with (site.install(name) / "RECORD").open("a") as listing:
            listing.write(f"nvidia/nccl/lib/libnccl.so.2,sha256={code},1\nnvidia/__init__.py,sha256={code},1\n")


def forget_hashes(site: Site) -> None:
    (site.install() / "RECORD").write_text("tensorflow/__init__.py,,\n")


@pytest.mark.parametrize(
    ("spoil", "check", "why"),
    [
        (
            lambda site: site.install(version="2.18.1"),
            installation.version,
            "module says 2.19.0, its distribution says 2.18.1",
        ),
        (install_twice, installation.version, "one installed distribution should own"),
        (lambda site: site.install(tag="cp39-cp39-linux_x86_64"), installation.wheel_tags, "no tag of the wheel fits"),
        (change_byte, installation.files, "0 files missing, 1 changed.*tensorflow/__init__.py"),
        (lose_file, installation.files, "1 files missing.*lost.so"),
        (forget_hashes, installation.files, "no RECORD of its files"),
        (overwrite_library, installation.apart, "libnccl.so.2 is of nvidia-nccl-cu1. and of nvidia-nccl-cu1."),
    ],
)
def test_an_installation_that_is_not_whole_fails(
    site: Site, spoil: Callable[[Site], object], check: Callable[[Expectation], object], why: str
) -> None:
    spoil(site)
    with pytest.raises(Fail, match=why):
        check(Expectation())


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("_ARRAY_API not found"),
        ImportError("numpy.core.multiarray failed to import"),
        RuntimeError("Detected incompatible Protobuf Gencode/Runtime versions"),
    ],
)
def test_a_package_that_breaks_the_import_is_named(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise error

    wheel = SimpleNamespace(
        name="tensorflow", requires=["pytest<1", "absent"], files=[PackagePath("tensorflow/__init__.py")]
    )
    monkeypatch.setattr("importlib.metadata.distributions", lambda: iter([wheel]))
    monkeypatch.setattr(installation, "load_tensorflow", broken)
    with pytest.raises(Fail) as caught:
        installation.imports(Expectation())
    assert str(error) in str(caught.value)
    assert "pytest" in str(caught.value)
    assert "versions that TensorFlow requires" in caught.value.remedy


@pytest.mark.parametrize(
    ("tag", "good"),
    [
        ("cp311-cp311-manylinux_2_17_x86_64", True),
        ("cp311-cp311-linux_x86_64", True),
        ("cp38-abi3-manylinux2014_x86_64", True),
        ("py3-none-any", True),
        ("cp312-cp312-linux_x86_64", False),
        ("cp311-cp311-linux_aarch64", False),
        ("cp311-cp311-win_amd64", False),
        ("cp311-cp311", False),
    ],
)
def test_tags(tag: str, good: bool) -> None:
    assert installation.fits(tag, "cp311", "x86_64") is good


@pytest.mark.parametrize(
    ("requirement", "why"),
    [("no-such-distribution>=1", "no-such-distribution is missing"), ("packaging<1", "packaging .* is not <1")],
)
def test_an_unmet_requirement_fails(site: Site, requirement: str, why: str) -> None:
    site.install(requires=("packaging", requirement))
    with pytest.raises(Fail, match=why):
        installation.dependencies(Expectation())


def test_an_import_error_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ImportError("libtensorflow_cc.so.2: cannot open shared object file")

    monkeypatch.setattr(installation, "load_tensorflow", broken)
    with pytest.raises(Fail, match=r"libtensorflow_cc\.so\.2"):
        installation.imports(Expectation())
