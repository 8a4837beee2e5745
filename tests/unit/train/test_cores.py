import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.makers.control_groups import V2, make
from train.command_line import parse
from train.cores import count_cores, read_quota
from train.step import runtime

ROOT = Path(__file__).parents[3]
DOCKER = "/docker/7cd29f74f5e3"


V1 = f"78 77 0:29 {DOCKER} {{}} ro,nosuid - cgroup cgroup rw,cpu,cpuacct"
CASES = {
    "version 2, in a namespace": ("0::/\n", V2, {"cpu.max": "150000 100000\n"}, 1.5),
    "version 2, no quota": ("0::/\n", V2, {"cpu.max": "max 100000\n"}, None),
    "version 2, own group": ("0::/a/b\n", V2, {"a/b/cpu.max": "300000 100000\n"}, 3),
    "version 2, a group around it": (
        "0::/a/b/c\n",
        V2,
        {"a/b/c/cpu.max": "max 100000\n", "a/b/cpu.max": "800000 100000\n", "a/cpu.max": "200000 100000\n"},
        2,
    ),
    "version 2, outside of the namespace": ("0::/../other\n", V2, {"cpu.max": "50000 100000\n"}, 0.5),
    "version 2, a sibling's quota": ("0::/a\n", V2, {"b/cpu.max": "50000 100000\n"}, None),
    "version 1, docker": (
        f"4:memory:/x\n1:cpu,cpuacct:{DOCKER}\n0::{DOCKER}\n",
        V1,
        {"cpu.cfs_quota_us": "250000\n", "cpu.cfs_period_us": "100000\n"},
        2.5,
    ),
    "version 1, no quota": (
        f"1:cpu,cpuacct:{DOCKER}\n",
        V1,
        {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"},
        None,
    ),
    "version 1, a group inside": (
        f"1:cpu,cpuacct:{DOCKER}/inner\n",
        V1,
        {
            "cpu.cfs_quota_us": "-1\n",
            "cpu.cfs_period_us": "100000\n",
            "inner/cpu.cfs_quota_us": "10000\n",
            "inner/cpu.cfs_period_us": "20000\n",
        },
        0.5,
    ),
    "version 1, another controller": ("3:cpuset:/\n", V1.replace("cpu,cpuacct", "cpuset"), {}, None),
    "nothing mounted": ("0::/\n", "", {"cpu.max": "50000 100000\n"}, None),
    "damaged": ("0::/\nnoise\n", V2, {"cpu.max": "many cores\n"}, None),
}


@pytest.mark.parametrize("case", CASES)
def test_quotas_are_read(case: str, tmp_path: Path) -> None:
    cgroup, mount, files, quota = CASES[case]
    assert read_quota(make(tmp_path, cgroup, mount, files)) == quota


@pytest.mark.parametrize(
    ("quota", "cores"), [("max", 8), ("50000", 1), ("100000", 1), ("150000", 2), ("400000", 4), ("9900000", 8)]
)
def test_the_lower_of_affinity_and_quota_counts(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert count_cores(make(tmp_path, "0::/\n", V2, {"cpu.max": f"{quota} 100000\n"})) == cores


def test_threads_are_the_usable_cores_unless_given_or_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "count_cores", lambda: 3)
    assert runtime.choose_threads(parse(["digits"]), None) == 3
    assert runtime.choose_threads(parse(["digits"]), 5) == 5
    assert runtime.choose_threads(parse(["digits", "--threads", "7"]), 5) == 7


def test_the_wheel_build_can_take_the_file_alone(tmp_path: Path) -> None:
    """The Dockerfile mounts train/cores.py beside the build's scripts, without the rest of the training job."""
    mount = "--mount=type=bind,source=train/cores.py,target=/build/train/cores.py"
    assert mount in (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (tmp_path / "train").mkdir()
    shutil.copy(ROOT / "train" / "cores.py", tmp_path / "train")
    shutil.copytree(ROOT / "docker" / "scripts" / "wheelbuild", tmp_path / "wheelbuild")
    code = "import wheelbuild.__main__ as build, train; print(build.count_cores(), *train.__path__)"
    done = subprocess.run(
        [sys.executable, "-ES", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    number, _, folder = done.stdout.partition(" ")
    assert (int(number) >= 1, folder) == (True, f"{tmp_path / 'train'}\n"), done.stderr
