import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.docker import farms
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import edit

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.usefixtures("bazel")]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with farms.serve() as farm:
        yield farm.url


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    with (workspace.source / "tensorflow/core/kernels/BUILD").open("a") as build:
        build.write(
            'genrule(name = "stamp", outs = ["stamp.h"], cmd = "echo > $@", tags = ["no-remote-exec"])\n'
            'cc_library(name = "stamped", hdrs = ["stamp.h"])\n'
        )
    edit(workspace.source / "tensorflow/core/kernels/BUILD", 'deps = [":reduce_"', 'deps = [":stamped"] + [":reduce_"')
    with (workspace.source / "tensorflow/core/kernels/host.cc").open("a") as source:
        source.write(f'extern "C" const char *standin_note() {{ return "{uuid.uuid4()}"; }}\n')
    return workspace


def build(workspace: Workspace, *arguments: str) -> tuple[dict[str, Any], dict[str, int]]:
    done = workspace.build("--json", *arguments)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    manifest = json.loads((workspace.folder / said["folder"] / "manifest.json").read_text())
    return said, manifest["facts"]["bazel"]["runners"]


def test_all_actions_run_remotely_and_a_second_clean_build_takes_all_from_the_cache(
    service: str, new_cache: Callable[[], str], workspace: Workspace
) -> None:
    first, ran = build(workspace, "--cache", new_cache(), "--remote-executor", service)
    assert ran.keys() == {"internal", "total", "remote", "local"}
    assert ran["local"] == 1, "the marked action, and no other"
    assert first["actions"]["remote"] == ran["remote"]

    second, again = build(workspace, "--cache", new_cache(), "--remote-executor", service, "--out", "second")
    assert again == {"remote cache hit" if name == "remote" else name: count for name, count in ran.items()}
    assert second["actions"]["cached_by"] == {"remote cache hit": ran["remote"]}
    assert second["digest"] == first["digest"]


@pytest.mark.weekly
def test_executor_serves_its_results_as_a_cache_alone(
    service: str, new_cache: Callable[[], str], workspace: Workspace
) -> None:
    first, ran = build(workspace, "--cache", new_cache(), "--remote-executor", service)
    second, again = build(workspace, "--cache", new_cache(), "--remote-cache", service, "--out", "second")
    assert again["remote cache hit"] == ran["remote"]
    assert second["digest"] == first["digest"]


@pytest.mark.weekly
def test_casd_gives_the_wheel_of_a_build_here_and_then_keeps_all_results(
    built: tuple[Workspace, dict[str, Any]], new_cache: Callable[[], str], tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path)
    with farms.serve(*farms.CASD) as farm:
        first, ran = build(workspace, "--cache", new_cache(), "--remote-executor", farm.url)
        assert ran.keys() == {"internal", "total", "remote"}
        again, _ = build(workspace, "--cache", new_cache(), "--remote-executor", farm.url, "--out", "again")
    assert (again["actions"]["cached"], again["actions"]["remote"]) == (ran["remote"], 0)
    assert first["digest"] == again["digest"] == built[1]["digest"]


@pytest.mark.weekly
def test_another_toolchain_gets_nothing_that_the_service_keeps_for_this_one(
    service: str, new_cache: Callable[[], str], workspace: Workspace, clone: Path
) -> None:
    tag = "toolkit/test:worker"
    done = workspace.toolkit("build-image", "--target", "bazel-worker", "--tag", tag, "--json")
    assert done.returncode == 0, done.stderr
    toolchain = json.loads(done.stdout)["toolchain"]
    build(workspace, "--cache", new_cache(), "--remote-executor", service)
    log = next((workspace.folder / "state").glob("wheel-*/build.log")).read_text()
    assert f"--remote_instance_name=toolkit-{toolchain} " in log

    workspace.root = clone
    edit(clone / "docker/scripts/name-toolchain", "sha256(found)", 'sha256(found + b"another")')
    _, ran = build(workspace, "--cache", new_cache(), "--remote-executor", service, "--out", "other")
    assert ran["remote"] >= 8
    subprocess.run(["docker", "image", "rm", tag], check=True, capture_output=True)
