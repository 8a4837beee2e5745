"""What a build does when its executor fails. ``TOOLKIT_FARM_KILLS`` says how many kills at random moments are tried."""

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.docker import justbuild
from tests.integration.docker.test_wheel import change, edit
from tests.integration.place import Place

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.usefixtures("bazel")]

KILLS = int(os.environ.get("TOOLKIT_FARM_KILLS", "1"))
CALLS = (b"FindMissingBlobs", b"ByteStream/Write", b"Execution/Execute", b"ByteStream/Read")
"""The first of each are before the upload, during it, during execution, and during the download of an output."""


@pytest.fixture
def farm() -> Iterator[justbuild.Farm]:
    with justbuild.serve() as farm:
        yield farm


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    change(place.source)  # in no cache
    return place


def require_failure(done: subprocess.CompletedProcess[str], place: Place, reason: str = "") -> None:
    assert done.returncode == 6, done.stderr
    assert done.stderr.count("error: the remote executor does not answer, or refuses the work") == 1, done.stderr
    assert done.stderr.count("\n  try: ") == 1, done.stderr
    assert reason in done.stderr
    assert place.results == []


def require_wheel(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["digest"])


def test_kills_at_random_moments_leave_no_wrong_wheel_and_the_next_run_goes_on(
    new_cache: Callable[[], str], place: Place
) -> None:
    local = require_wheel(place.build("--json", "--cache", new_cache(), "--out", "local"))
    for number in range(KILLS):
        dice = random.Random(f"{number} of {KILLS}")  # noqa: S311
        call, delay, cache = dice.choice(CALLS), dice.uniform(0, 2), new_cache()
        with justbuild.serve() as farm:
            killed = farm.when(call, lambda farm=farm, delay=delay: (time.sleep(delay), farm.kill()))  # type: ignore[misc]
            command = ("--json", "--cache", cache, "--remote-executor", farm.url)
            done = place.build(*command)
            print(number, call.decode(), f"{delay:.2f} s", "killed" if killed.is_set() else "", done.returncode)
            if done.returncode:
                require_failure(done, place)
            else:
                assert require_wheel(done) == local, "the kill came too late"
            assert killed.wait(60)
            farm.start()
            assert require_wheel(place.build(*command)) == local
        shutil.rmtree(place.folder / "dist")


def test_frozen_executor_ends_the_build_and_a_slow_action_does_not(
    farm: justbuild.Farm, new_cache: Callable[[], str], place: Place, clone: Path
) -> None:
    place.root = clone
    edit(clone / "docker/scripts/wheelbuild/watchdog.py", "SILENCE = 30", "SILENCE = 4")
    rules = place.source / "tensorflow/core/kernels/BUILD"
    edit(rules, 'deps = [":reduce_"', 'deps = [":slow"] + [":reduce_"')
    with rules.open("a") as build:
        build.write('genrule(name = "late", outs = ["late.h"], cmd = "sleep 10; echo > $@")\n')
        build.write('cc_library(name = "slow", hdrs = ["late.h"])\n')
    frozen = farm.when(b"Execution/Execute", farm.freeze)
    command = ("--json", "--cache", new_cache(), "--remote-executor", farm.url)
    require_failure(place.build(*command), place, "wheel: the remote executor stopped answering")
    assert frozen.is_set()
    farm.thaw()
    require_wheel(place.build(*command))


def test_full_disk_of_the_executor_is_named(new_cache: Callable[[], str], place: Place) -> None:
    with justbuild.serve("--tmpfs", f"{justbuild.STORE}:size=128k,exec") as farm:
        require_failure(place.build("--json", "--cache", new_cache(), "--remote-executor", farm.url), place)
