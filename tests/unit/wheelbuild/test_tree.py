import os
from pathlib import Path

import prove
import pytest
from kernels import tree

SAID = """\
ptxas info    : 0 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function '_Z4FillPfif' for 'sm_75'
ptxas info    : Function properties for _Z4FillPfif
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 368 bytes cmem[0]
ptxas info    : Compiling entry function '_Z4WideIdEvPT_' for 'sm_75'
ptxas info    : Function properties for _Z4WideIdEvPT_
    96 bytes stack frame, 88 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 96 bytes cumulative stack size, 400 bytes cmem[0]
"""
"""Lines of ptxas 12.8.93 --verbose, with shorter names."""


def write_tree(folder: Path, count: int) -> list[Path]:
    paths = [folder / tree.FOLDERS[number % 2] / f"op_{number:03}.cu.cc" for number in range(count)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return sorted(paths)


def test_all_files_are_compiled_each_once_and_not_by_name(
    kernels: tree.Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree.Kernels, "compile", lambda _, source: tree.Compiled(file=source.name, seconds=0))
    names = [f"{number}.cu.cc" for number in range(9)]
    done = [each.file for each in tree.compile_all(kernels, [Path(name) for name in names])]
    assert done != names
    assert sorted(done) == names


def test_tests_and_kernels_for_other_cards_are_no_part_of_the_wheel(tmp_path: Path) -> None:
    (path,) = write_tree(tmp_path, 1)
    path.with_name("prim_test.cu.cc").write_text("")
    amd = tmp_path / "third_party/xla/xla/stream_executor/rocm/topk_kernel_rocm_float.cu.cc"
    amd.parent.mkdir(parents=True)
    amd.write_text("")
    assert tree.find_sources(tmp_path, "all") == [path]


COMPILER = """\
#!/bin/sh
for word; do last=$previous; previous=$word; done
case " $* " in
*" -E "*) cat "$WORK/source" ;;
*" --version "*) echo "clang 99" ;;
*) echo "$*" >>"$WORK/said"; grep -q broken "$WORK/source" && { echo "a.cc:1: error: broken" >&2; exit 1; }
   echo made >"$previous" ;;
esac
"""
ASSEMBLER = """\
#!/bin/sh
for word; do case $word in --output-file=*) echo cubin >"${word#*=}";; esac; done
cat "$WORK/verbose" >&2
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tree.Kernels:
    """Kernels that are compiled by programs that write down how they are called."""
    for name in ("bin", "cuda/bin", "kept", "work"):
        (tmp_path / name).mkdir(parents=True)
    for path, text in (("bin/clang++-99", COMPILER), ("cuda/bin/ptxas", ASSEMBLER)):
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    (tmp_path / "verbose").write_text(SAID)
    (tmp_path / "source").write_text("kernel")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("WORK", str(tmp_path))
    monkeypatch.setattr(prove, "CUDA", tmp_path / "cuda")
    toolchain = prove.Toolchain(llvm="99", gcc="g++", work=tmp_path / "work", tensorflow="2.19.0")
    features: dict[str, list[str]] = {"75": [], "120": ["--cuda-feature=+ptx87"]}
    return tree.Kernels(
        toolchain=toolchain,
        tree=tmp_path / "tree",
        flags=tree.list_flags(toolchain, tmp_path / "tree"),
        features=features,
        kept=tmp_path / "kept",
    )


def test_a_file_is_compiled_for_each_device_and_the_host_and_kept(kernels: tree.Kernels, tmp_path: Path) -> None:
    (source,) = write_tree(kernels.tree, 1)
    first = kernels.compile(source)
    assert (first.file, first.cause) == (f"{tree.FOLDERS[0]}/op_000.cu.cc", "")
    assert (first.kernels, first.registers, first.spills) == (4, 255, 176)
    device, other, host = (tmp_path / "said").read_text().splitlines()
    assert "--cuda-gpu-arch=sm_75 --cuda-device-only" in device
    assert "--cuda-gpu-arch=sm_120 --cuda-device-only --cuda-feature=+ptx87" in other
    assert "--cuda-host-only -Xclang -fcuda-include-gpubinary" in host
    assert f"-I{kernels.tree}/third_party/xla " in host
    assert (kernels.kept / f"{first.kept}.o").read_text() == "made\n"

    assert kernels.compile(source) == first, "taken from what was kept"
    assert len((tmp_path / "said").read_text().splitlines()) == 3

    (tmp_path / "source").write_text("kernel with another header")
    assert kernels.compile(source).kept != first.kept
    assert len((tmp_path / "said").read_text().splitlines()) == 6


def test_a_failure_is_reported_and_tried_again(kernels: tree.Kernels, tmp_path: Path) -> None:
    (source,) = write_tree(kernels.tree, 1)
    (tmp_path / "source").write_text("broken")
    done = kernels.compile(source)
    assert (done.cause, done.error, done.kept) == ("compiler", "a.cc:1: error: broken", "")
    assert list(kernels.kept.iterdir()) == []
    (tmp_path / "source").write_text("kernel")
    assert kernels.compile(source).cause == ""
