import re
import shutil
import subprocess
import tarfile
import uuid
from pathlib import Path

import pytest

from tests.integration.docker import stages
from tests.makers.mini_tensorflow import WHEEL, edit
from tests.makers.sets import choose
from toolkit.versions import lock
from toolkit.versions.table import load_table

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("bazel")]

COMPILER = re.compile(r"(.*-)?(cc|c\+\+|c89|c99|cpp|gcc|g\+\+|clang|clang\+\+|ld|as|make)(-[\w.]+)?")


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'f"--repo_env=CC={locate_clang(request)}"',
            "Cannot find gcc or CC; either correct your path or set the CC environment variable",
        ),
        ('"--linkopt=-Wl,--undefined-version"', "symbol 'standin_that_was_removed' failed: symbol not defined"),
    ],
)
def test_a_flag_left_out_fails_here(line: str, words: str, cache: str, tmp_path: Path) -> None:
    """The stand-in needs each flag as TensorFlow's tree does, and the stage has no program called gcc."""
    for folder in ("docker", "bazel_patches"):
        shutil.copytree(stages.ROOT / folder, tmp_path / folder)
    for name in lock.RECIPE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if not (tmp_path / name).exists():
            shutil.copy(stages.ROOT / name, tmp_path / name)
    edit(tmp_path / "docker/scripts/wheelbuild/arguments.py", line, '"--jobs=2"')
    outcome = stages.build_mini(cache=cache, root=tmp_path)
    assert outcome.step_code == 1, outcome.text
    assert words in outcome.text


@pytest.mark.weekly
@pytest.mark.parametrize("version", ["2.20.0", "2.21.0"])
def test_a_later_version_gets_the_flags_of_its_row(version: str, cache: str, mini: Path, tmp_path: Path) -> None:
    """Without flags, the build would download a compiler."""
    stages.upgrade(mini, version)
    flags = choose(load_table(), tensorflow=version).bazel_arguments
    asked = {"TENSORFLOW_VERSION": version, "LLVM_VERSION": "18"}
    told = {"BAZEL_ARGUMENTS": " ".join(flags), **asked}
    outcome = stages.build_mini(mini, cache=cache, output=tmp_path / "out", arguments=told)
    assert outcome.code == 0, outcome.text
    assert [file.name for file in (tmp_path / "out").glob("*.whl")] == [WHEEL.replace("2.19.0", version)]

    silent = stages.build_mini(mini, cache=cache, output=tmp_path / "silent", arguments=asked)
    assert "unless --config=clang_local is given" in silent.text


@pytest.mark.weekly
def test_without_its_patch_a_later_version_refuses_clang_22(cache: str, mini: Path, patches: Path) -> None:
    stages.upgrade(mini, "2.21.0")
    (patches / "tensorflow/2.21.0/series").write_text("")
    asked = {"TENSORFLOW_VERSION": "2.21.0", "LLVM_VERSION": "22", "CUDA_VERSION": "12.8.1", "CUDNN_VERSION": "9.8.0"}
    asked |= {"COMPUTE_CAPABILITIES": "compute_120", "BAZEL_ARGUMENTS": "--config=clang_local"}
    outcome = stages.build_mini(mini, cache=cache, arguments=asked, contexts={"patches": patches})
    assert outcome.step_code == 2, outcome.text
    assert "Please add max PTX version supported by Clang major version=22" in outcome.text


def test_bazel_brings_no_compiler() -> None:
    name = f"toolkit-tests-{uuid.uuid4().hex[:8]}"
    create = ["docker", "create", "--name", name, "toolkit/bazel:debian", "none"]
    subprocess.run(create, check=True, capture_output=True)
    try:
        export = subprocess.Popen(["docker", "export", name], stdout=subprocess.PIPE)
        with tarfile.open(fileobj=export.stdout, mode="r|") as tree:
            names = {entry.name for entry in tree if not entry.isdir()}
        assert export.wait() == 0
    finally:
        subprocess.run(["docker", "rm", name], check=True, capture_output=True)
    assert "usr/bin/bazel" in names
    programs = [name for name in names if name.startswith(("usr/bin/", "usr/local/bin/", "etc/alternatives/"))]
    assert [name for name in programs if COMPILER.fullmatch(Path(name).name)] == []
    assert "usr/include/zlib.h" not in names, "TensorFlow builds its own zlib"
