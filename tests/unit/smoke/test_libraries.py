import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.smoke.conftest import Compiler, Site
from tests.unit.smoke.published import PUBLISHED
from toolkit.checks import libraries
from toolkit.checks.check import Expectation, Fail
from toolkit.checks.libraries import list_libraries

ASKED = Expectation(cuda="12.6.1", cudnn="9.5.0")
CUDA_12 = list_libraries(PUBLISHED)
CUDNN = "nvidia/cudnn/lib/libcudnn.so.9"
CUDART = "nvidia/cuda_runtime/lib/libcudart.so.12"


def test_a_whole_set_passes(cuda_site: Site) -> None:
    assert list(libraries.load(ASKED)["loaded"]) == [*CUDA_12]
    evidence = libraries.versions(ASKED)
    assert (evidence["cudaRuntimeGetVersion"], evidence["cudnnGetVersion"]) == (12060, 90500)


def test_the_libraries_of_cuda_13_are_read_in_their_one_folder(cuda_13_site: Site) -> None:
    asked = Expectation(cuda="13.1.0", cudnn="9.12.0")
    folder = cuda_13_site.root / "nvidia/cu13/lib"
    loaded = libraries.load(asked)["loaded"]
    assert loaded["libcublas.so.13"] == str(folder / "libcublas.so.13")
    assert loaded["libcusparse.so.12"] == str(folder / "libcusparse.so.12")
    assert not {"libcublas.so.12", "libcufft.so.11"} & loaded.keys()
    assert libraries.versions(asked)["cudaRuntimeGetVersion"] == 13010
    with pytest.raises(Fail, match=r"cuda 13\.0\.0 was asked for, 13\.1 is loaded"):
        libraries.versions(Expectation(cuda="13.0.0"))
    for path in (folder / "libcublas.so.13", folder / "../../cudnn/lib/libcudnn.so.9"):
        path.unlink()
    with pytest.raises(Fail, match="2 of 19 libraries do not load: libcublas") as caught:
        libraries.load(asked)
    assert "install nvidia-cublas, nvidia-cudnn-cu13 of the CUDA" in caught.value.remedy


def test_libraries_of_another_cuda_beside_those_of_the_build_are_not_taken(cuda_site: Site) -> None:
    other = cuda_site.write("nvidia/cu13/lib/libcusparse.so.12", b"of CUDA 13")
    (cuda_site.root / "nvidia/cusparse/lib/libcusparse.so.12").unlink()
    with pytest.raises(Fail, match=r"libcusparse\.so\.12") as caught:
        libraries.load(ASKED)
    assert str(other) not in str(caught.value.evidence)


@pytest.mark.parametrize("check", [libraries.load, libraries.versions, libraries.reachable])
def test_a_cuda_whose_names_are_not_known_is_told(site: Site, check: Callable[[Expectation], object]) -> None:
    site.build |= {"cuda_version": "99.0.0"}
    with pytest.raises(Fail, match=r"CUDA 99\.0\.0: this check knows the libraries of CUDA 12 and 13 only"):
        check(Expectation())


@pytest.mark.parametrize("soname", ["libcudart.so.12", "libcudnn_engines_runtime_compiled.so.9"])
def test_each_missing_library_is_named_with_its_package(cuda_site: Site, soname: str) -> None:
    next(cuda_site.root.glob(f"nvidia/*/lib/{soname}")).unlink()
    with pytest.raises(Fail, match=re.escape(soname)) as caught:
        libraries.load(ASKED)
    assert CUDA_12[soname] in caught.value.remedy
    assert list(caught.value.evidence["missing"]) == [soname]


def test_what_needs_the_driver_is_left_out_without_one(
    cuda_site: Site, gcc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "DRIVER", "libabsent.so.1")
    needed = {
        "libabsent.so.1": (),
        "libcudnn_ops.so.9": ("libabsent.so.1",),
        "libcudnn_cnn.so.9": ("libcudnn_ops.so.9",),
    }
    for soname, others in needed.items():
        links = ["-Wl,--no-as-needed", f"-L{tmp_path}", *(f"-l:{name}" for name in others)]
        library = gcc("int nothing;", f"-Wl,-soname,{soname}", "-Wl,--allow-shlib-undefined", *links)
        (tmp_path / soname).write_bytes(library)
        if others:
            cuda_site.write(f"nvidia/cudnn/lib/{soname}", library)
    found = libraries.load(ASKED)
    assert list(found["skipped"]) == ["libcudnn_ops.so.9", "libcudnn_cnn.so.9"]
    assert len(found["loaded"]) == len(CUDA_12) - 2


@pytest.mark.parametrize(
    ("file", "answers", "why"),
    [
        (CUDNN, {}, "libcudnn.so.9 cannot be asked"),
        (CUDNN, {"cudnn": 90300}, "cudnn 9.5.0 was asked for, 9.3.0 is loaded"),
        (CUDNN, {"cudnn": 90501}, "cudnn 9.5.0 was asked for, 9.5.1 is loaded"),
        (CUDART, {"cuda": 12050}, "cuda 12.6.1 was asked for, 12.5 is loaded"),
        (CUDART, {"cuda": 11080}, "cuda 12.6.1 was asked for, 11.8 is loaded"),
        (CUDART, {"error": 35}, "cudaRuntimeGetVersion returned error 35"),
    ],
)
def test_a_library_of_another_version_fails(
    cuda_site: Site, gcc: Compiler, file: str, answers: dict[str, int], why: str
) -> None:
    cuda_site.write(file, gcc.answering(**answers) if answers else gcc("int nothing;"))
    with pytest.raises(Fail, match=re.escape(why)):
        libraries.versions(ASKED)


@pytest.mark.parametrize(
    ("built", "loaded", "why"),
    [
        ("9.6.0", 90500, "cuDNN 9.5.0 is loaded, older than 9.6.0 of the build"),
        ("9", 8904, "cudnn 8 is loaded, TensorFlow was built for 9"),
    ],
)
def test_a_cudnn_that_does_not_fit_the_build_fails_though_nobody_asked(
    cuda_site: Site, gcc: Compiler, built: str, loaded: int, why: str
) -> None:
    cuda_site.build = {**PUBLISHED, "cudnn_version": built}
    cuda_site.write(CUDNN, gcc.answering(cudnn=loaded))
    with pytest.raises(Fail, match=why):
        libraries.versions(Expectation())


def test_the_loaders_order_is_kept(
    cuda_site: Site, gcc: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_site.write("elsewhere/libcudnn.so.9", gcc.answering(cudnn=90400))
    cuda_site.write("tensorflow/libtensorflow_cc.so.2", gcc("int tf;", "-Wl,-rpath,$ORIGIN/../elsewhere"))
    with pytest.raises(Fail, match=r"9\.4\.0 is loaded"):
        libraries.versions(ASKED)
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "libcudnn.so.9").write_bytes(gcc.answering(cudnn=90300))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{hiding}")
    with pytest.raises(Fail, match=r"9\.3\.0 is loaded"):
        libraries.versions(ASKED)


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        (("GLIBC_2.5", "GLIBC_99.1"), "needs the C library GLIBC_99.1, and 2."),
        (("GLIBCXX_3.4.999",), "needs libstdc++ GLIBCXX_3.4.999, and 3.4."),
        (("GLIBC_2.5", "OTHER_99"), ""),
    ],
)
def test_an_older_system_is_named_before_the_import(
    site: Site, gcc: Compiler, tmp_path: Path, versions: tuple[str, ...], why: str
) -> None:
    (tmp_path / "versions").write_text("".join(f"{name} {{ f{i}; }};\n" for i, name in enumerate(versions)))
    sources = [f"int f{i}(void) {{ return {i}; }}" for i, _ in enumerate(versions)]
    (tmp_path / "libsystem.so").write_bytes(gcc("\n".join(sources), f"-Wl,--version-script={tmp_path / 'versions'}"))
    calls = " + ".join(f"f{i}()" for i, _ in enumerate(versions))
    declared = "".join(f"int f{i}(void); " for i, _ in enumerate(versions))
    library = gcc(f"{declared} int all(void) {{ return {calls}; }}", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lsystem")
    site.write("tensorflow/libtensorflow_framework.so.2", library)
    if not why:
        assert libraries.system(Expectation())["needed"] == {"GLIBC": "2.5"}
        return
    with pytest.raises(Fail, match=re.escape(why)) as caught:
        libraries.system(Expectation())
    assert caught.value.remedy.endswith("-too-old`")


def test_a_damaged_library_of_tensorflow_is_named(site: Site) -> None:
    site.write("tensorflow/python/_pywrap_tensorflow_internal.so", b"\x7fELF")
    with pytest.raises(Fail, match=r"_pywrap_tensorflow_internal.so is|not a 64-bit"):
        libraries.system(Expectation())
