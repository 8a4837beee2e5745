import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.workspace import CACHE, Workspace
from tests.makers.build_image import NEEDS_TENSORFLOW
from tests.makers.mini_tensorflow import edit
from toolkit.engine import buildx
from toolkit.versions.table import load_table

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200), pytest.mark.usefixtures("bazel")]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_result_is_verified_and_a_changed_byte_is_not(built: tuple[Workspace, dict[str, Any]], tmp_path: Path) -> None:
    workspace, value = built
    done = workspace.toolkit("verify", value["folder"], "--json")
    assert done.returncode == 0, done.stderr
    assert {item["id"] for item in json.loads(done.stdout)["findings"]} >= {"sums", "versions", "auditwheel", "sbom"}
    copy = Path(shutil.copytree(workspace.folder / value["folder"], tmp_path / "copy"))
    wheel = next(copy.glob("*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"\1")
    done = workspace.toolkit("verify", str(copy))
    assert done.returncode == 8
    assert "is not what SHA256SUMS says" in done.stderr


@pytest.mark.weekly
def test_second_build_without_caches_gives_the_same_wheel(built: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, value = built
    before = buildx.find_caches()
    done = workspace.toolkit("reproduce", value["folder"], "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["level"], found["differences"]) == ("R3", [])
    left = {mount.name for mount in buildx.find_caches()} - {mount.name for mount in before}
    assert not left, "of the real build it would be tens of gigabytes"
    assert any(mount.name == CACHE for mount in buildx.find_caches()), "the cache of builds stays"


def test_a_wheel_for_processors_is_built_without_cuda_and_checked_in_a_container(
    workspace: Workspace, built: tuple[Workspace, dict[str, Any]]
) -> None:
    done = workspace.build("--cuda", "none", "--cpu-target", "x86-64-v2", "--verbose", "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["plan"] != built[1]["plan"]
    assert "[cuda-parts " not in done.stderr, "nothing of CUDA is fetched"
    folder = workspace.folder / value["folder"]
    assert not re.search("cuda|cudnn|capabilit|nvidia", (folder / "plan.json").read_text(), re.IGNORECASE)
    argv = json.loads((folder / "build.json").read_text())["argv"]
    assert not [word for word in argv if "cuda" in word.lower()]
    assert "nvidia" not in (folder / "sbom.cdx.json").read_text().lower()
    verified = workspace.toolkit("verify", value["folder"])
    assert verified.returncode == 0, verified.stderr
    with workspace.image("--wheel", value["folder"], "--cuda", "none", "--target", "runtime") as image:
        skip = [word for name in NEEDS_TENSORFLOW for word in ("--skip", name)]
        checked = workspace.toolkit(
            "smoke", "--image", image["image"], "--cuda", "none", "--tensorflow", "2.19.0", *skip
        )
        assert checked.returncode == 0, checked.stdout
    installed = workspace.toolkit("install", "--into", "env", "--wheel", value["folder"], "--cuda", "none")
    assert "TensorFlow 2.19.0 is in" in installed.stdout, installed.stderr
    checked = workspace.toolkit("smoke", "--environment", "env", *skip)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_a_function_with_avx_ends_a_build_that_was_to_do_without(workspace: Workspace) -> None:
    """A rule of the tree may have flags of its own, which come after all others."""
    rules = workspace.source / "tensorflow/core/kernels/BUILD"
    edit(rules, "    local_defines =", '    copts = ["-mavx"] if name == "max" else [],\n    local_defines =')
    done = workspace.build("--cpu-target", "x86-64-v2")
    assert done.returncode == 6
    assert re.search(r"wheel: instructions: \d+ in libtensorflow_cc\.so\.2: standin_max\n", done.stderr)
    assert "standin_min" not in done.stderr
    assert workspace.results == []


@pytest.mark.weekly
def test_a_wheel_without_avx_runs_on_a_processor_without(
    workspace: Workspace, built: tuple[Workspace, dict[str, Any]]
) -> None:
    """QEMU's Nehalem has no AVX: what uses it there dies of signal 4."""
    done = workspace.build("--cpu-target", "x86-64-v2", "--json")
    assert done.returncode == 0, done.stderr
    program = "import tensorflow; assert tensorflow.total('1 2 3.5') == 6.5"
    codes = []
    for folder, name in ((workspace.folder, json.loads(done.stdout)["wheel"]), (built[0].folder, built[1]["wheel"])):
        site = workspace.folder / f"site{len(codes)}"
        shutil.unpack_archive(folder / name, site, "zip")
        argv = ["qemu-x86_64", "-cpu", "Nehalem", sys.executable, "-S", "-c", program]
        ended = subprocess.run(argv, env={"PYTHONPATH": str(site)}, capture_output=True, check=False)
        codes.append(ended.returncode)
    assert codes == [0, -signal.SIGILL]


def test_provenance_names_the_bazel_that_ran(built: tuple[Workspace, dict[str, Any]]) -> None:
    workspace, value = built
    folder = workspace.folder / value["folder"]
    report = json.loads((folder / "build.json").read_text())
    statement = json.loads((folder / "provenance.intoto.json").read_text())
    dependencies = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"name": f"bazel-{report['bazel']}", "digest": {"sha256": report["bazel_sha256"]}} in dependencies
    row = load_table().bazel_rows["6.5.0"]
    assert (report["bazel"], report["bazel_sha256"]) != (row.version, row.sha256["x86_64"])
    argv = ["docker", "create", "toolkit/bazel:debian", "none"]
    container = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    try:
        copy = ["docker", "cp", "--follow-link", f"{container}:{report['bazel_path']}", str(workspace.folder / "bazel")]
        subprocess.run(copy, capture_output=True, check=True)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)
    assert hashlib.sha256((workspace.folder / "bazel").read_bytes()).hexdigest() == report["bazel_sha256"]


def test_ctrl_c_leaves_nothing_behind_and_the_next_run_goes_on(
    workspace: Workspace, new_cache: Callable[[], str]
) -> None:
    """The build has its own cache, so what the second run finds there is from the interrupted one."""
    packer = workspace.hold_packer()
    cache = new_cache()
    process = workspace.start("--cache", cache)
    waiting = workspace.wait_for(process, packer)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    while Path(f"/proc/{waiting}").exists():
        assert time.monotonic() - began < 30, "Bazel outlived its build"
        time.sleep(0.1)
    assert "The same command goes on" in errors
    assert workspace.results == []
    assert list((workspace.folder / "dist").iterdir()) == []

    edit(workspace.source / packer.decode(), "time.sleep(600)", "time.sleep(0)")
    done = workspace.build("--cache", cache, "--json")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((workspace.folder / json.loads(done.stdout)["folder"] / "manifest.json").read_text())
    assert manifest["facts"]["bazel"]["runners"].get("local", 0) <= 1, "only packing was left"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may kill a process of a container, as the kernel does")
def test_compiler_killed_for_memory_advises_fewer_jobs(workspace: Workspace) -> None:
    packer = workspace.hold_packer()
    process = workspace.start("--verbose")
    os.kill(workspace.wait_for(process, packer), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 6, errors
    assert "error: the build failed: the kernel killed a compiler" in errors
    assert "--jobs" in errors
    assert re.search(r"try: BAZEL_JOBS=\d+; compiled files are kept", errors)
    assert list((workspace.folder / "dist").iterdir()) == []


def test_compile_error_is_shown_and_the_whole_log_is_kept(workspace: Workspace) -> None:
    edit(workspace.source / "tensorflow/core/kernels/host.cc", "standin_total(", "standin_total((")
    done = workspace.build()
    assert done.returncode == 6
    assert "Compiling tensorflow/core/kernels/host.cc failed" in done.stderr
    assert "error: expected ')'" in done.stderr
    assert list((workspace.folder / "dist").iterdir()) == []
    log = next((workspace.folder / "state").glob("wheel-*/bazel/build.log"))
    assert "error: expected ')'" in log.read_text()
    assert "buildFinished" in (log.parent / "events.json").read_text()


def test_download_with_another_hash_than_pinned_is_refused(workspace: Workspace, clone: Path) -> None:
    locked = clone / "docker/requirements/toolchain-12.6.1.txt"
    locked.write_text(re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, locked.read_text()))
    workspace.root = clone
    done = workspace.build()
    assert done.returncode == 8, done.stderr
    assert "error: the build failed: a downloaded file has other bytes than were pinned" in done.stderr
    assert list((workspace.folder / "dist").iterdir()) == []


@pytest.fixture
def small_disk(workspace: Workspace) -> Iterator[Path]:
    folder = workspace.folder / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_full_disk_leaves_no_half_wheel(workspace: Workspace, small_disk: Path) -> None:
    done = workspace.build("--out", str(small_disk))
    assert done.returncode == 4, done.stderr
    assert "error: the disk of" in done.stderr
    assert list(small_disk.iterdir()) == []
