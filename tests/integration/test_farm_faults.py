"""What a build does when its executor or its cache server fails, or sends wrong bytes."""

import json
import os
import random
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.docker import farms
from tests.integration.workspace import Workspace
from tests.makers.mini_tensorflow import edit
from tests.makers.poisoned_cache import note
from tests.tiers import weekly

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("bazel")]


CALLS = (b"FindMissingBlobs", b"ByteStream/Write", b"Execution/Execute", b"ByteStream/Read")

"""The first of each are before the upload, during it, during execution, and during the download of an output."""

SWAP = """
import pathlib, sys
words = [word.encode() for word in sys.argv[1:]]
for path in filter(pathlib.Path.is_file, pathlib.Path("/srv/just").rglob("*")):
    content = path.read_bytes()
    if content[:4] == b"\\x7fELF" and b".rela" in content and words[0] in content:
        path.chmod(0o644)
        path.write_bytes(content.replace(*words))
"""
"""Replaces a word in every object file, as if another source had been compiled."""

SPOIL = """
import pathlib
for path in pathlib.Path("/srv/just").rglob("*"):
    if path.is_file() and path.read_bytes()[:2] == b"PK":
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"x")
"""

HEAL = """
digest=$0
find /srv/just -path "*/$(echo "$digest" | cut -c1-2)/$(echo "$digest" | cut -c3-)" -delete
grep --recursive --files-with-matches --fixed-strings "$digest" /srv/just | xargs rm
"""


@pytest.fixture
def farm(request: pytest.FixtureRequest) -> Iterator[farms.Farm]:
    with farms.serve(*getattr(request, "param", ())) as farm:
        yield farm


GONE = "the build failed: the remote executor does not answer, or refuses the work"
POISONED = "the build failed: the remote service sent other bytes than their digest says"


def require_failure(
    done: subprocess.CompletedProcess[str], workspace: Workspace, reason: str = "", *, error: str = GONE
) -> None:
    assert done.returncode == 6, done.stderr
    assert done.stderr.count(f"error: {error}") == 1, done.stderr
    assert done.stderr.count("\n  try: ") == 1, done.stderr
    assert reason in done.stderr
    assert workspace.results == []


def require_wheel(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["digest"])


def add_action(workspace: Workspace, command: str) -> None:
    """Let the library wait for a command."""
    rules = workspace.source / "tensorflow/core/kernels/BUILD"
    edit(rules, 'deps = [":reduce_"', 'deps = [":added"] + [":reduce_"')
    with rules.open("a") as build:
        build.write(f'genrule(name = "add", srcs = [], outs = ["add.h"], cmd = "{command}")\n')
        build.write('cc_library(name = "added", hdrs = ["add.h"])\n')


@pytest.mark.parametrize(
    ("calls", "server"),
    [weekly(CALLS[2:3], ()), weekly(CALLS * 5, ()), weekly((*CALLS, CALLS[2]), farms.CASD, id="casd")],
)
def test_kills_at_random_moments_leave_no_wrong_wheel_and_the_next_run_goes_on(
    new_cache: Callable[[], str], workspace: Workspace, calls: tuple[bytes, ...], server: tuple[str, ...]
) -> None:
    seed = os.environ.get("TOOLKIT_KILLS", "") or uuid.uuid4().hex
    print(f"the moments of TOOLKIT_KILLS={seed}")
    dice, failed = random.Random(seed), 0  # noqa: S311
    local = require_wheel(workspace.build("--json", "--cache", new_cache(), "--out", "local"))
    for number, call in enumerate(calls):
        delay, cache = dice.uniform(0, 2), new_cache()
        with farms.serve(*server) as farm:
            # A single kill must be in the middle: the executor works, and Bazel cannot hear that anything is done.
            killed = farm.when(call, partial(farm.kill, delay), held=len(calls) == 1)
            command = ("--json", "--cache", cache, "--remote-executor", farm.url)
            done = workspace.build(*command)
            print(number, call.decode(), f"{delay:.2f} s", "killed" if killed.is_set() else "", done.returncode)
            if done.returncode:
                require_failure(done, workspace)
                failed += 1
            else:
                assert require_wheel(done) == local
            assert killed.wait(60)
            farm.start()
            assert require_wheel(workspace.build(*command)) == local
        shutil.rmtree(workspace.folder / "dist")
    assert 2 * failed >= len(calls), "most kills came too late"


@pytest.mark.weekly
def test_frozen_executor_ends_the_build_and_a_slow_action_does_not(
    farm: farms.Farm, new_cache: Callable[[], str], workspace: Workspace, clone: Path
) -> None:
    workspace.root = clone
    edit(clone / "docker/scripts/wheelbuild/watchdog.py", "SILENCE = 30", "SILENCE = 4")
    add_action(workspace, "sleep 10; echo > $@")
    frozen = farm.when(b"Execution/Execute", farm.freeze, held=True)
    command = ("--json", "--cache", new_cache(), "--remote-executor", farm.url)
    require_failure(workspace.build(*command), workspace, "wheel: the remote executor stopped answering")
    assert frozen.is_set()
    farm.thaw()
    require_wheel(workspace.build(*command))


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("folder", "command", "error"),
    [
        ("/tmp", "cat /dev/zero > /tmp/full", "the remote executor's disk is full"),
        # What the action says has no room there either.
        (farms.STORE, "cat /dev/zero > $@ || { rm $@; exit 1; }", "an action failed without a word"),
    ],
    ids=["temporary", "store"],
)
def test_full_disk_that_an_action_meets_is_named_as_the_executors_and_the_next_run_goes_on(
    new_cache: Callable[[], str], workspace: Workspace, folder: str, command: str, error: str
) -> None:
    add_action(workspace, command)
    with farms.serve("--tmpfs", f"{folder}:size=16m,exec") as farm:
        options = ("--json", "--cache", new_cache(), "--remote-executor", farm.url, "--jobs", "1")
        done = workspace.build(*options)
        assert done.returncode == 6, done.stderr
        assert f"error: the build failed: {error}" in done.stderr
        assert (done.stderr.count("\n  try: "), workspace.results) == (1, [])
        farm.run("rm", "--force", "/tmp/full")
        edit(workspace.source / "tensorflow/core/kernels/BUILD", command, "echo > $@")
        require_wheel(workspace.build(*options))


@pytest.mark.weekly
def test_wrong_bytes_of_an_output_end_the_build_and_of_an_input_are_found_by_a_second_build(
    new_cache: Callable[[], str], workspace: Workspace
) -> None:
    with farms.serve() as farm:

        def build(out: str) -> subprocess.CompletedProcess[str]:
            return workspace.build("--json", "--cache", new_cache(), "--remote-executor", farm.url, "--out", out)

        good, bad = uuid.uuid4().hex, uuid.uuid4().hex
        note(workspace, good)
        digest = require_wheel(build("good"))
        farm.run("python3", "-c", SWAP, good, bad)
        edit(workspace.source / "tensorflow/core/kernels/version_script.lds", "{", "/* linked again */ {")
        done = build("wrong")
        wrong = require_wheel(done)
        assert wrong != digest, "Bazel cannot know"
        checked = workspace.toolkit("reproduce", json.loads(done.stdout)["folder"])
        assert checked.returncode == 7, checked.stderr
        assert "error: the second build gave another wheel" in checked.stderr

        farm.run("python3", "-c", SPOIL)
        done = build("dist")
        require_failure(done, workspace, "does not match received digest", error=POISONED)
        (blob,) = re.findall(r"(?i)  try: remove the blob (\w+) there", done.stderr)
        farm.run("sh", "-c", HEAL, blob)
        assert require_wheel(build("dist")) == wrong
